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

var early = steps.Declare[int, int]("early")

// TestCase16: jobs that a process starts and takes while it starts up itself
// are not orphans. Many workers start at once, each with runs of its own begun
// around that moment, which go on until all have swept; every step runs once,
// in its first attempt.
func TestCase16(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	const processes, each = 8, 12
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
	envEngine(t, envPool(t, dsn), engine.Config{Workflows: []steps.Definition{define()}}) // the workflow is known
	var mu sync.Mutex
	var runs []engine.Run[int]
	var all sync.WaitGroup
	var some *engine.Engine
	for p := range processes {
		pool, proxy := envProxied(t, dsn) // a process has its own
		var once sync.Once
		proxy.OnExecute(func(sql string) pgproxy.Action {
			if envStatement(sql, "Recover") { // begins, and takes a moment
				once.Do(func() {
					if sweeping.Add(1) == processes {
						time.AfterFunc(200*time.Millisecond, func() { close(swept) })
					}
				})
			}
			return pgproxy.Pass
		})
		all.Go(func() {
			starter, err := engine.New(t.Context(), pool, engine.Config{}) // the contract only
			if err != nil {
				t.Error(err)
				return
			}
			var starts sync.WaitGroup
			starts.Go(func() {
				for i := range each {
					r, err := engine.Start(t.Context(), starter, early, i, engine.Key(fmt.Sprint(p, "-", i)))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					runs = append(runs, r)
					mu.Unlock()
				}
			})
			e, err := engine.New(t.Context(), pool, engine.Config{Workflows: []steps.Definition{define()}})
			if err != nil {
				t.Error(err)
				return
			}
			work(t, e)
			mu.Lock()
			some = e
			mu.Unlock()
			starts.Wait()
		})
	}
	all.Wait()
	for _, r := range runs {
		envResult(t, some, r)
		info := envInfo(t, some, r.ID)
		for _, h := range info.History {
			if h.Event != "completed" || h.Attempt != 1 {
				t.Errorf("run %s: %+v", r.ID, h)
			}
		}
	}
	if n := calls.Load(); n != 2*processes*each {
		t.Errorf("%d calls of %d steps", n, 2*processes*each)
	}
}
