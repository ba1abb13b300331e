package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

var early = steps.Declare[int, int]("early")

// TestCase16: jobs that a process starts and takes while it starts up itself
// are not orphans, nor are those of others who work already. Workers start one
// after the other, each with runs of its own begun around that moment; the
// first step of each goes on until all have swept. Every step runs once, in
// its first attempt.
func TestCase16(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	const processes, each = 5, 12
	var calls, sweeping atomic.Int64
	swept := make(chan struct{})
	define := func() steps.Definition {
		one := steps.New("one", func(ctx context.Context, n int) (int, error) {
			calls.Add(1)
			select {
			case <-swept:
			case <-ctx.Done():
			}
			return n + 1, ctx.Err()
		})
		two := steps.New("two", func(_ context.Context, n int) (int, error) { calls.Add(1); return n + 1, nil })
		return early.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] { return two.Do(f, one.Do(f, in)) })
	}
	starter := envEngine(t, envPool(t, dsn), engine.Config{Workflows: []steps.Definition{define()}}) // the workflow is known
	var mu sync.Mutex
	var runs []engine.Run[int]
	var starts sync.WaitGroup
	for p := range processes {
		pool, proxy := envProxied(t, dsn)
		var once sync.Once
		proxy.OnExecute(func(sql string) pgproxy.Action {
			if envStatement(sql, "Pulse") { // which tells recovery at once if there is something to take back
				once.Do(func() { sweeping.Add(1) })
			}
			return pgproxy.Pass
		})
		starts.Go(func() {
			for i := range each {
				r, err := engine.Start(context.Background(), starter, early, i, engine.Key(fmt.Sprint(p, "-", i)))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				runs = append(runs, r)
				mu.Unlock()
			}
		})
		work(t, envEngine(t, pool, engine.Config{Workflows: []steps.Definition{define()}}))
		effUntil(t, "steps run", func() bool { return calls.Load() > int64(p*each) && sweeping.Load() > int64(p) })
	}
	starts.Wait()
	effUntil(t, "all steps run", func() bool { return calls.Load() >= processes*each })
	close(swept)
	for _, r := range runs {
		effSuccess(t, starter, r)
		for _, h := range effGet(t, starter, r.ID).History {
			if h.Event != "completed" || h.Attempt != 1 {
				t.Errorf("run %s: %+v", r.ID, h)
			}
		}
	}
	if n := calls.Load(); n != 2*processes*each {
		t.Errorf("%d calls of %d steps", n, 2*processes*each)
	}
}
