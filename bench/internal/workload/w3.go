package workload

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawlworks/pawl/bench/internal/system"
)

var w3 = Workload{
	Name:  "W3",
	Title: "starting 50,000 runs, nobody works",
	Cases: []Case{{N: 50000, Peers: true}},
	Limit: 2 * time.Minute,
	Measure: func(ctx context.Context, e *Env) error {
		if e.contestant.Direct {
			e.note("starting means running here: not measured")
			return nil
		}
		s, err := e.open(ctx, e.Slots)
		if err != nil {
			return err
		}
		if err := s.Enqueue(ctx, 1); err != nil { // connections, plans
			return err
		}
		if err := e.checkpoint(ctx); err != nil {
			return err
		}
		n := e.nPeers(e.Case.N)
		if e.Quick {
			n = max(1, n/2)
		}
		began := time.Now()
		if err := s.Enqueue(ctx, n); err != nil {
			return err
		}
		e.add("runs_per_s", float64(n)/time.Since(began).Seconds())
		one, ok := s.(system.Starter)
		if !ok {
			return nil
		}
		return e.singleStarts(ctx, one, n/5)
	},
}

// singleStarts is 16 callers who start a run at a time.
func (e *Env) singleStarts(ctx context.Context, s system.Starter, n int) error {
	const callers = 16
	n = max(1, n/callers)
	errs := make([]error, callers)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range callers {
		wg.Go(func() {
			for range n {
				if errs[i] = s.StartOne(ctx); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	e.add("single_starts_per_s", float64(n*callers)/took.Seconds())
	return errors.Join(errs...)
}
