package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/examples/order/books"
	"github.com/pawlworks/pawl/examples/order/orders"
	"github.com/pawlworks/pawl/examples/order/provider"
	"github.com/pawlworks/pawl/examples/order/shop"
	"github.com/pawlworks/pawl/steps"
)

// Run runs the example to its end. The error tells what went wrong: that the
// books do not agree, too.
func Run(ctx context.Context, o Options) (s Summary, err error) {
	began := time.Now()
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	list, err := orders.All()
	if err != nil {
		return s, err
	}
	if o.Orders <= 0 || o.Orders > len(list) {
		o.Orders = len(list)
	}
	if err := engine.Migrate(ctx, o.Pool); err != nil {
		return s, err
	}
	if err := shop.Setup(ctx, o.Pool); err != nil {
		return s, err
	}
	if o.Provider == "" {
		release, err := alone(ctx, o.Pool)
		if err != nil {
			return s, err
		}
		defer release()
	}
	known, err := keep(ctx, o.Pool, o.Ledger, o.Orders)
	if err != nil {
		return s, err
	}
	list = list[:min(known.Orders, len(list))]
	admin, stop, err := o.provider(ctx)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, stop()) }()

	us := &shop.Shop{
		Pay:         shop.NewPayments(admin.URL, timeout),
		Post:        shop.NewPost(admin.URL, timeout),
		LateArrival: lateArrival,
		MaxDelay:    maxDelay,
	}
	defer us.Close()
	e, err := engine.New(ctx, o.Pool, engine.Config{
		Workflows: []steps.Definition{us.Fulfil()},
		Name:      "shop",
		Slots:     o.Slots,
		Session:   session,
		Logger:    o.Logger,
	})
	if err != nil {
		return s, err
	}
	if err := o.fulfil(ctx, e, list, &s); err != nil {
		return s, err
	}
	ledger, err := admin.Ledger(ctx)
	if err != nil {
		return s, err
	}
	report, err := books.Compare(ctx, o.Pool, ledger)
	if err != nil {
		return s, err
	}
	s.Reconciled, s.ChargedTwice, s.Forgotten = report.LookedUp, len(report.Twice), len(report.Forgotten)
	s.Took = time.Since(began)
	fmt.Fprint(o.Out, s)
	return s, errors.Join(report.Err(), s.agrees(report))
}

// provider is where the provider is, started if need be, with its faults on
// or off as wanted.
func (o Options) provider(ctx context.Context) (admin provider.Admin, stop func() error, err error) {
	admin, stop = provider.Admin{URL: o.Provider}, func() error { return nil }
	if o.Provider == "" {
		ledger, err := findLedger(ctx, o.Pool, o.Ledger)
		if err != nil {
			return admin, nil, err
		}
		process, err := Provider(ledger)
		if err != nil {
			return admin, nil, err
		}
		admin.URL, stop = process.URL, process.Stop
		fmt.Fprintf(o.Out, "the provider: %s, its ledger: %s\n", admin.URL, ledger)
	}
	faults := Faults()
	if !o.Faults {
		for i := range faults {
			faults[i].Rate = 0
		}
	}
	if err := admin.Switch(ctx, faults...); err != nil {
		return admin, nil, errors.Join(err, stop())
	}
	return admin, stop, nil
}

// agrees checks that every run ended as its order's books say.
func (s Summary) agrees(r books.Report) error {
	if s.Succeeded != r.Paid || s.Declined != r.Held || s.Failed > 0 {
		return fmt.Errorf("%d runs succeeded, %d were declined, %d failed otherwise; and %d orders are paid, %d held",
			s.Succeeded, s.Declined, s.Failed, r.Paid, r.Held)
	}
	return nil
}
