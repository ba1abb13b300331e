package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// A process that dies, or goes deaf, before an effect's body has begun leaves
// nothing uncertain: another simply does it.
func TestEffectNotBegun(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := effPool(t, url)
	b := newEffBank(t)

	doomedPool, proxy := effProxy(t, url)
	var stalled atomic.Bool
	proxy.OnExecute(func(sql string) pgproxy.Action {
		if effStatement(sql, "Begin") {
			stalled.Store(true)
			return pgproxy.Stall
		}
		return pgproxy.Pass
	})
	doomed := effEngine(t, doomedPool, engine.Config{Name: "doomed", Workflows: effCharging(b), NoListen: true})
	work(t, doomed)
	var runs []engine.Run[string]
	for i, w := range []steps.Workflow[effOrder, string]{effByLookUp, effByPerson, effBySilent, effByKey} {
		runs = append(runs, effStart(t, doomed, w, effOrder{ID: fmt.Sprint("order-", i), Forgetful: true}))
	}
	effUntil(t, "all to be claimed, and one to begin", func() bool {
		return stalled.Load() && effScan[int](t, pool, "SELECT count(*) FROM pawl.job WHERE state = 'running'") == len(runs)
	})
	for i := range runs {
		if n := b.sent(fmt.Sprint("order-", i)); n != 0 {
			t.Errorf("%d charges were sent before their beginning was durable", n)
		}
	}
	// It hears and says nothing any more, and is taken for dead.
	proxy.StallAll()
	healthy := effEngine(t, pool, engine.Config{Name: "healthy", Workflows: effCharging(b)})
	work(t, healthy)
	effUntil(t, "its session to be closed", func() bool { // a renewal may have been on its way
		effExec(t, pool, "UPDATE pawl.session SET expires_at = pawl.now() - interval '1 second' WHERE name = 'doomed' AND closed_at IS NULL")
		return effScan[bool](t, pool, "SELECT bool_and(closed_at IS NOT NULL) FROM pawl.session WHERE name = 'doomed'")
	})
	for i, r := range runs {
		effSuccess(t, healthy, r)
		info := effGet(t, healthy, r.ID)
		if len(effRows(info, "lapsed")) != 1 || len(effRows(info, "uncertain")) != 0 {
			t.Errorf("%s: %v", info.Workflow, effEvents(info))
		}
		if n := len(b.entries(fmt.Sprint("order-", i))); n != 1 {
			t.Errorf("%s charged %d times", info.Workflow, n)
		}
	}
	proxy.OnExecute(nil)
	proxy.Release() // now its beginnings arrive, and must begin nothing
	effUntil(t, "the deaf process to work again", func() bool {
		return effScan[int](t, pool, "SELECT count(*) FROM pawl.session WHERE name = 'doomed' AND closed_at IS NULL AND expires_at > pawl.now()") == 1
	})
	for i := range runs {
		if n := b.sent(fmt.Sprint("order-", i)); n != 1 {
			t.Errorf("order %d was sent %d times", i, n)
		}
	}
}

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
