package shop_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/examples/order/books"
	"github.com/pawlworks/pawl/examples/order/orders"
	"github.com/pawlworks/pawl/examples/order/provider"
	"github.com/pawlworks/pawl/examples/order/shop"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// open is a shop that works, and its provider.
type open struct {
	t     *testing.T
	pool  *pgxpool.Pool
	e     *engine.Engine
	admin provider.Admin
}

const delay = 100 * time.Millisecond // of the look-up

func openShop(t *testing.T, faults ...provider.Fault) *open {
	t.Helper()
	o := &open{t: t, pool: pgtest.Pool(t)}
	if err := shop.Setup(t.Context(), o.pool); err != nil {
		t.Fatal(err)
	}
	p, err := provider.Open(provider.Options{Ledger: filepath.Join(t.TempDir(), "ledger.jsonl"), Delay: delay, Faults: faults})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(p)
	o.admin.URL = server.URL
	const timeout = time.Second
	s := &shop.Shop{
		Pay:         shop.NewPayments(server.URL, timeout),
		Post:        shop.NewPost(server.URL, timeout),
		LateArrival: 2 * time.Second,
		MaxDelay:    100 * time.Millisecond,
	}
	o.e, err = engine.New(t.Context(), o.pool, engine.Config{
		Workflows: []steps.Definition{s.Fulfil()}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, drain := context.WithCancel(context.Background())
	worked := make(chan error, 1)
	go func() { worked <- o.e.Work(ctx) }()
	t.Cleanup(func() {
		drain()
		if err := errors.Join(<-worked, p.Close()); err != nil {
			t.Error(err)
		}
		server.Close()
		s.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return o
}

// fulfil runs an order to its end and compares the books.
func (o *open) fulfil(order orders.Order) (books.Report, error) {
	o.t.Helper()
	run, err := engine.Start(o.t.Context(), o.e, orders.Fulfil, order, engine.Key(order.ID))
	if err != nil {
		o.t.Fatal(err)
	}
	_, failed := run.Wait(o.t.Context())
	ledger, err := o.admin.Ledger(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	r, err := books.Compare(o.t.Context(), o.pool, ledger)
	if err := errors.Join(err, r.Err()); err != nil {
		o.t.Error(err)
	}
	return r, failed
}

var one = orders.Order{ID: "order-1", Customer: "customer-1", SKU: "sku-01", Quantity: 2, Cents: 100}

// Whatever goes wrong with a charge, once: the order is fulfilled, and charged
// once. The provider forgets every key, so nothing but the look-up helps.
func TestOneFault(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		fault    provider.Fault
		lookedUp int
	}{
		{"none", provider.Fault{Mode: provider.Lose}, 0},
		{"500, not charged", provider.Fault{Mode: provider.FailBefore, Next: 1}, 0},
		{"500, charged", provider.Fault{Mode: provider.FailAfter, Next: 1}, 1},
		{"time-out, not charged", provider.Fault{Mode: provider.TimeoutBefore, Next: 1}, 0},
		{"time-out, charged", provider.Fault{Mode: provider.TimeoutAfter, Next: 1}, 1},
		{"lost answer", provider.Fault{Mode: provider.Lose, Next: 1}, 1},
		// Half a second after the shop has given up; its first questions find nothing.
		{"charged late", provider.Fault{Mode: provider.Slow, Next: 1, Delay: provider.Duration(1500 * time.Millisecond)}, 1},
		{"the look-up fails too", provider.Fault{Mode: provider.FailBefore, On: provider.Lookups, Next: 3}, 0},
		{"parcel lost answer", provider.Fault{Mode: provider.Lose, On: provider.Parcels, Next: 2}, 0},
		{"mail 500", provider.Fault{Mode: provider.FailAfter, On: provider.Mails, Next: 2}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			faults := []provider.Fault{test.fault, {Mode: provider.Forget, Rate: 1}}
			if test.fault.On == provider.Lookups {
				faults = append(faults, provider.Fault{Mode: provider.FailAfter, Next: 1})
				test.lookedUp = 1
			}
			r, err := openShop(t, faults...).fulfil(one)
			if err != nil {
				t.Error(err)
			}
			if r.Paid != 1 || r.Charges != 1 || r.LookedUp != test.lookedUp {
				t.Errorf("the report is %+v, want one charge, %d looked up", r, test.lookedUp)
			}
		})
	}
}

func TestDeclinedOrderKeepsItsHold(t *testing.T) {
	t.Parallel()
	r, err := openShop(t, provider.Fault{Mode: provider.Declined, Rate: 1}).fulfil(one)
	var failed *engine.FailedError
	if !errors.As(err, &failed) || failed.Step != "charge" || failed.Code != "DECLINED" {
		t.Errorf("the run ended with %v, want DECLINED at charge", err)
	}
	if r.Held != 1 || r.Charges != 0 {
		t.Errorf("the report is %+v, want one order held and none charged", r)
	}
}

func TestOutOfStockReservesNothing(t *testing.T) {
	t.Parallel()
	greedy := one
	greedy.Quantity = 1_000_000
	r, err := openShop(t).fulfil(greedy)
	var failed *engine.FailedError
	if !errors.As(err, &failed) || failed.Step != "reserve" || failed.Code != "OUT_OF_STOCK" {
		t.Errorf("the run ended with %v, want OUT_OF_STOCK at reserve", err)
	}
	if r.Orders != 0 || r.Charges != 0 {
		t.Errorf("the report is %+v, want nothing: the transaction was rolled back", r)
	}
}
