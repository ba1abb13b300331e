package shop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Payments is the client of the payment provider.
type Payments struct{ api }

// NewPayments makes a client of the provider at url. No call takes longer than
// the time-out.
func NewPayments(url string, timeout time.Duration) *Payments {
	return &Payments{newAPI(url, timeout)}
}

// charged is how the provider tells what became of a charge.
type charged struct {
	ID     string `json:"id"`
	Order  string `json:"order"`
	Status string `json:"status"`
}

// Charge charges a card. ErrDeclined and ErrNotSent are definite; after any
// other error the card may have been charged.
func (p *Payments) Charge(ctx context.Context, key string, c Charge) (Receipt, error) {
	in := map[string]any{"order": c.Order, "customer": c.Customer, "cents": c.Cents}
	var out charged
	err := p.post(ctx, "/charges", key, in, &out)
	var status *StatusError
	if errors.As(err, &status) && status.Status == http.StatusPaymentRequired {
		return Receipt{}, fmt.Errorf("%w: %w", ErrDeclined, err)
	}
	if err != nil {
		return Receipt{}, err
	}
	return Receipt{ChargeID: out.ID}, out.check(c.Order)
}

// Find asks for the charge of a key. A card that was declined has not been
// charged: that is not found either, and asking for the charge again is then
// safe and brings the refusal.
func (p *Payments) Find(ctx context.Context, key, order string) (Receipt, bool, error) {
	query := url.Values{"key": {key}, "order": {order}}
	var out charged
	err := p.get(ctx, "/charges?"+query.Encode(), &out)
	var status *StatusError
	switch {
	case errors.As(err, &status) && status.Code == "not_found":
		return Receipt{}, false, nil
	case err != nil:
		return Receipt{}, false, err
	case out.Status == "declined":
		return Receipt{}, false, nil
	}
	return Receipt{ChargeID: out.ID, LookedUp: true}, true, out.check(order)
}

// check refuses an answer that is not about our order.
func (c charged) check(order string) error {
	if c.ID == "" || c.Order != order || c.Status != "succeeded" {
		return fmt.Errorf("the provider answers with charge %q of %q, %q; we asked for %q", c.ID, c.Order, c.Status, order)
	}
	return nil
}
