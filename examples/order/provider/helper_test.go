package provider_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawlworks/pawl/examples/order/provider"
)

// The test binary is the provider's process too, for the test that kills it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "provider" {
		os.Exit(provider.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// client is a caller with little patience.
type client struct {
	t    *testing.T
	url  string
	http http.Client
}

// open opens a provider on a new ledger behind a server, and a client of it.
func open(t *testing.T, o provider.Options) *client {
	t.Helper()
	if o.Ledger == "" {
		o.Ledger = filepath.Join(t.TempDir(), "ledger.jsonl")
	}
	p, err := provider.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(p)
	c := &client{t: t, url: server.URL}
	c.http.Transport = &http.Transport{DisableKeepAlives: true} // net/http must not repeat a request by itself
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return c
}

// reply is an answer, or that there was none.
type reply struct {
	status   int // 0: none
	body     string
	replayed bool
	err      error
}

func (c *client) call(patience time.Duration, method, path, key string, body any) (r reply) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(text))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := c.http.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return reply{err: err}
	}
	return reply{res.StatusCode, string(answer), res.Header.Get("Idempotent-Replayed") != "", nil}
}

const (
	long  = 20 * time.Second      // never reached
	short = 50 * time.Millisecond // for those who will wait in vain
)

// charge charges order under the key key-<order>.
func (c *client) charge(order string) reply {
	c.t.Helper()
	return c.call(long, "POST", "/charges", "key-"+order, provider.ChargeRequest{Order: order, Customer: "customer-1", Cents: 100})
}

// chargeBriefly is charge by a caller who gives up at once.
func (c *client) chargeBriefly(order string) reply {
	c.t.Helper()
	return c.call(short, "POST", "/charges", "key-"+order, provider.ChargeRequest{Order: order, Customer: "customer-1", Cents: 100})
}

func (c *client) lookUp(order string) reply {
	c.t.Helper()
	return c.call(long, "GET", "/charges?key=key-"+order+"&order="+order, "", nil)
}

func (c *client) on(faults ...provider.Fault) {
	c.t.Helper()
	if err := (provider.Admin{URL: c.url}).Switch(c.t.Context(), faults...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) ledger() provider.Ledger {
	c.t.Helper()
	ledger, err := provider.Admin{URL: c.url}.Ledger(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return ledger
}

// charged fails the test unless the order was charged so many times.
func (c *client) charged(order string, times int) {
	c.t.Helper()
	if got := len(c.ledger().Of(provider.Charge)[order]); got != times {
		c.t.Errorf("%s is in the ledger %d times, want %d", order, got, times)
	}
}

// answered fails the test unless the reply has the status; 0 is a caller who
// gave up.
func (c *client) answered(r reply, status int) {
	c.t.Helper()
	if r.status != status || (status == 0 && !errors.Is(r.err, context.DeadlineExceeded)) {
		c.t.Errorf("the answer is %d %s (%v), want %d", r.status, r.body, r.err, status)
	}
}

// until polls, with some patience.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(long)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("in vain: ", what)
		}
	}
}
