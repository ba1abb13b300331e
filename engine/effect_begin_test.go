package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// Ten rolling restarts under load, with charges of two seconds and thirty to
// end in, make nothing uncertain.
func TestEffectRollingRestarts(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := effPool(t, url)
	w := steps.Declare[int, int]("rolling")
	var mu sync.Mutex
	sent := map[int]int{}
	var inFlight atomic.Int64
	def := w.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
		never := func(context.Context, int) (steps.Verdict[int], error) { return steps.NeverHappened[int](), nil }
		paid := steps.New("pay", func(ctx context.Context, n int) (int, error) {
			inFlight.Add(1)
			defer inFlight.Add(-1)
			mu.Lock()
			sent[n]++
			mu.Unlock()
			select {
			case <-time.After(2 * time.Second):
				return n, nil
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		}).LookUp(never, time.Hour).Do(f, in)
		return steps.New("mail", func(_ context.Context, n int) (int, error) { return n, nil }).Do(f, paid)
	})
	type worker struct {
		e    *engine.Engine
		stop context.CancelFunc
		done chan error
	}
	launch := func(i int) *worker {
		wk := &worker{e: effEngine(t, pool, engine.Config{Name: fmt.Sprint("worker-", i), Workflows: []steps.Definition{def}, Slots: 4, Drain: 30 * time.Second}), done: make(chan error, 1)}
		var ctx context.Context
		ctx, wk.stop = context.WithCancel(context.Background())
		go func() { wk.done <- wk.e.Work(ctx) }()
		return wk
	}
	end := func(wk *worker) {
		wk.stop()
		if err := effSignal(t, "a worker to end", wk.done); err != nil {
			t.Error(err)
		}
	}
	var runs []engine.Run[int]
	workers := []*worker{launch(0), launch(1)}
	feed := func(n int) { // more than the workers can take
		for range n {
			runs = append(runs, effStart(t, workers[0].e, w, len(runs)))
		}
	}
	feed(12)
	for i := range 10 {
		effUntil(t, "charges in flight", func() bool { return inFlight.Load() >= 3 })
		end(workers[i%2])
		workers[i%2] = launch(i + 2)
		feed(4)
	}
	for i, r := range runs {
		if out := effSuccess(t, workers[0].e, r); out != i {
			t.Errorf("run %d returned %d", i, out)
		}
	}
	for _, wk := range workers {
		end(wk)
	}
	if n := effScan[int](t, pool, "SELECT count(*) FROM pawl.history WHERE event NOT IN ('completed', 'handed_back')"); n != 0 {
		t.Errorf("%d transitions that are neither a completion nor a hand-back", n)
	}
	if n := effScan[int](t, pool, "SELECT count(*) FROM pawl.history WHERE event = 'completed' AND attempt <> 1"); n != 0 {
		t.Errorf("%d restarts cost an attempt", n)
	}
	for i := range runs {
		if sent[i] != 1 {
			t.Errorf("order %d was sent %d times", i, sent[i])
		}
	}
}
