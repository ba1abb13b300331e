package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/examples/order/orders"
)

// fulfil starts all orders, works, and waits for the end of each.
func (o Options) fulfil(ctx context.Context, e *engine.Engine, list []orders.Order, s *Summary) error {
	working, drain := context.WithCancel(ctx)
	worked := make(chan error, 1)
	waiting, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	go func() {
		err := e.Work(working)
		worked <- err
		giveUp(errors.Join(errors.New("nobody works any more"), err))
	}()
	err := o.await(waiting, e, list, s)
	drain()
	return errors.Join(err, <-worked)
}

func (o Options) await(ctx context.Context, e *engine.Engine, list []orders.Order, s *Summary) error {
	runs, err := start(ctx, e, list)
	if err != nil {
		return err
	}
	known := 0
	for _, run := range runs {
		if run.Existed {
			known++
		}
	}
	fmt.Fprintf(o.Out, "started: %d orders, %d of them earlier\n", len(runs), known)
	for n, run := range runs {
		_, err := run.Wait(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var failed *engine.FailedError
		switch {
		case err == nil:
			s.Succeeded++
		case errors.As(err, &failed) && failed.Code == "DECLINED":
			s.Declined++
		case errors.As(err, &failed):
			s.Failed++
			fmt.Fprintln(o.Out, err)
		default:
			return err
		}
		s.Runs++
		if step := max(len(runs)/10, 1); (n+1)%step == 0 {
			fmt.Fprintf(o.Out, "%d of %d have ended\n", n+1, len(runs))
		}
	}
	return nil
}

// start starts runs in chunks, so that no statement is large. A process that
// is killed in between starts the rest the next time.
func start(ctx context.Context, e *engine.Engine, list []orders.Order) (runs []engine.Run[orders.Shipment], err error) {
	for chunk := range slices.Chunk(list, 250) {
		var keys []string
		for _, o := range chunk {
			keys = append(keys, o.ID)
		}
		some, err := engine.StartMany(ctx, e, orders.Fulfil, chunk, engine.Keys(keys))
		if err != nil {
			return nil, err
		}
		runs = append(runs, some...)
	}
	return runs, nil
}
