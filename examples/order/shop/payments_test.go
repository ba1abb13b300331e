package shop_test

import (
	"context"
	"errors"
	"net"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/pawlworks/pawl/examples/order/provider"
	"github.com/pawlworks/pawl/examples/order/shop"
)

// pay makes a client of a provider with faults.
func pay(t *testing.T, timeout time.Duration, faults ...provider.Fault) (*shop.Payments, provider.Admin) {
	t.Helper()
	p, err := provider.Open(provider.Options{Ledger: filepath.Join(t.TempDir(), "ledger.jsonl"), Faults: faults})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(p)
	s := &shop.Shop{Pay: shop.NewPayments(server.URL, timeout), Post: shop.NewPost(server.URL, timeout)}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
		s.Close()
	})
	return s.Pay, provider.Admin{URL: server.URL}
}

const patience = 20 * time.Second

var owed = shop.Charge{Order: "order-1", Customer: "customer-1", Cents: 100}

func charges(t *testing.T, admin provider.Admin) []provider.Entry {
	t.Helper()
	ledger, err := admin.Ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ledger.Of(provider.Charge)[owed.Order]
}

func TestChargeIsFound(t *testing.T) {
	t.Parallel()
	p, _ := pay(t, patience)
	if r, found, err := p.Find(t.Context(), "key", "order-1"); found || err != nil {
		t.Errorf("found %+v %v, %v before there was a charge", r, found, err)
	}
	receipt, err := p.Charge(t.Context(), "key", owed)
	if err != nil || receipt.ChargeID == "" || receipt.LookedUp {
		t.Errorf("the receipt is %+v, %v", receipt, err)
	}
	receipt.LookedUp = true
	if r, found, err := p.Find(t.Context(), "key", "order-1"); r != receipt || !found || err != nil {
		t.Errorf("found %+v %v, %v; want %+v", r, found, err, receipt)
	}
}

// What is definite and what is not: an error that is neither ErrDeclined nor
// ErrNotSent leaves it open.
func TestChargeErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		mode    provider.Mode
		is      error // nil: uncertain
		charged int
	}{
		{provider.Declined, shop.ErrDeclined, 0},
		{provider.FailBefore, nil, 0},
		{provider.FailAfter, nil, 1},
		{provider.TimeoutBefore, nil, 0},
		{provider.TimeoutAfter, nil, 1},
		{provider.Lose, nil, 1},
	} {
		t.Run(string(test.mode), func(t *testing.T) {
			t.Parallel()
			timeout := patience
			if test.mode == provider.TimeoutBefore || test.mode == provider.TimeoutAfter {
				timeout = time.Second
			}
			p, admin := pay(t, timeout, provider.Fault{Mode: test.mode, Rate: 1})
			r, err := p.Charge(t.Context(), "key", owed)
			if err == nil || r != (shop.Receipt{}) {
				t.Errorf("the receipt is %+v, %v", r, err)
			}
			if errors.Is(err, shop.ErrDeclined) != (test.is == shop.ErrDeclined) || errors.Is(err, shop.ErrNotSent) {
				t.Errorf("the error is %v, want %v", err, test.is)
			}
			if got := len(charges(t, admin)); got != test.charged {
				t.Errorf("charged %d times, want %d", got, test.charged)
			}
			if _, found, err := p.Find(t.Context(), "key", "order-1"); found != (test.charged > 0) || err != nil {
				t.Errorf("found: %v, %v", found, err)
			}
		})
	}
}

// A key that is another request's says nothing about ours.
func TestChargeUnderAnothersKey(t *testing.T) {
	t.Parallel()
	p, _ := pay(t, patience)
	if _, err := p.Charge(t.Context(), "key", shop.Charge{Order: "order-2", Cents: 1}); err != nil {
		t.Fatal(err)
	}
	_, err := p.Charge(t.Context(), "key", owed)
	var status *shop.StatusError
	if !errors.As(err, &status) || status.Status != 422 || errors.Is(err, shop.ErrDeclined) || errors.Is(err, shop.ErrNotSent) {
		t.Errorf("the error is %v, want a 422 that leaves it open", err)
	}
	if r, found, err := p.Find(t.Context(), "key", "order-1"); err == nil {
		t.Errorf("found another order's charge: %+v %v", r, found)
	}
}

func TestLookUpThatFailsFindsNothing(t *testing.T) {
	t.Parallel()
	p, _ := pay(t, patience, provider.Fault{Mode: provider.FailBefore, On: provider.Lookups, Rate: 1})
	if r, found, err := p.Find(t.Context(), "key", "order-1"); err == nil || found {
		t.Errorf("found %+v %v, %v", r, found, err)
	}
}

func TestNotSent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := shop.NewPayments(url, patience).Charge(t.Context(), "key", owed); !errors.Is(err, shop.ErrNotSent) {
		t.Errorf("the error is %v, want ErrNotSent", err)
	}
}

// net/http would send a charge again by itself when a kept connection breaks,
// because it has an Idempotency-Key. This provider has forgotten the key.
func TestLostAnswerIsNotSentAgain(t *testing.T) {
	t.Parallel()
	p, admin := pay(t, patience, provider.Fault{Mode: provider.Forget, Rate: 1})
	for range 3 { // so that there is a connection to be kept
		if _, _, err := p.Find(t.Context(), "key", "order-1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := admin.Switch(t.Context(), provider.Fault{Mode: provider.Lose, Next: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Charge(t.Context(), "key", owed); err == nil {
		t.Error("an answer, though it was lost")
	}
	if got := len(charges(t, admin)); got != 1 {
		t.Errorf("charged %d times, want once", got)
	}
}

func TestChargeGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	p, _ := pay(t, patience, provider.Fault{Mode: provider.TimeoutBefore, Rate: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.Charge(ctx, "key", owed); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v", err)
	}
}
