package shop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// What a client can say for certain when it has no good answer.
var (
	ErrDeclined = errors.New("the card was declined")
	ErrNotSent  = errors.New("not sent: there is no connection")
)

// StatusError is any other answer than a good one.
type StatusError struct {
	Status  int
	Code    string
	Message string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the provider answers %d %s: %s", e.Status, e.Code, e.Message)
}

// api is what the clients share. Its time-out is its own, much shorter than
// the lease of a step: a body that hangs until its lease is lost learns nothing.
type api struct {
	url  string
	http *http.Client
}

func newAPI(url string, timeout time.Duration) api {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 100 // one a slot; the default of 2 would dial for nearly every call
	return api{url: url, http: &http.Client{Timeout: timeout, Transport: transport}}
}

func (a api) post(ctx context.Context, path, key string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	// net/http takes a request with an Idempotency-Key for repeatable and
	// sends it again by itself when a kept connection breaks. Whether to
	// send again is not for it to decide: the key may be forgotten by then.
	// Without GetBody it can't.
	req.GetBody = nil
	return a.do(req, out)
}

func (a api) get(ctx context.Context, path string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+path, nil)
	if err != nil {
		return err
	}
	return a.do(req, out)
}

func (a api) do(req *http.Request, out any) error {
	res, err := a.http.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		status := &StatusError{Status: res.StatusCode}
		_ = json.NewDecoder(res.Body).Decode(status) // a proxy's page has no code
		return status
	}
	return json.NewDecoder(res.Body).Decode(out)
}
