package shop

import (
	"context"
	"time"
)

// Post is the client of whoever delivers parcels and mails. Both remember
// keys for ever.
type Post struct{ api }

// NewPost makes a client of the provider at url.
func NewPost(url string, timeout time.Duration) *Post {
	return &Post{newAPI(url, timeout)}
}

// Parcel sends a parcel and returns its tracking number.
func (p *Post) Parcel(ctx context.Context, key string, s Sending) (string, error) {
	return p.send(ctx, "/parcels", key, s)
}

// Mail sends a mail and returns its id.
func (p *Post) Mail(ctx context.Context, key string, s Sending) (string, error) {
	return p.send(ctx, "/mails", key, s)
}

func (p *Post) send(ctx context.Context, path, key string, s Sending) (string, error) {
	var out struct {
		ID string `json:"id"`
	}
	err := p.post(ctx, path, key, map[string]any{"order": s.Order, "customer": s.Customer}, &out)
	return out.ID, err
}
