package engine_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// TestCase27 starts eight processes at once on an empty database, each of
// which migrates, defines the same workflows and works.
func TestCase27(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Blank(t)
	var calls atomic.Int64
	engines := make([]*engine.Engine, 8)
	var starts, ready sync.WaitGroup
	for i := range engines {
		pool := envPool(t, dsn)
		ready.Add(1)
		starts.Go(func() {
			err := pool.Ping(t.Context())
			ready.Done()
			ready.Wait() // at once, as near as can be
			if err != nil {
				t.Error(err)
				return
			}
			if err := engine.Migrate(t.Context(), pool); err != nil {
				t.Errorf("start %d: %v", i, err)
				return
			}
			e, err := engine.New(t.Context(), pool, engine.Config{Workflows: []steps.Definition{chainOf(3, &calls)}})
			if err != nil {
				t.Errorf("start %d: %v", i, err)
				return
			}
			work(t, e)
			engines[i] = e
		})
	}
	starts.Wait()
	if t.Failed() {
		return
	}
	for i, e := range engines {
		if out := effSuccess(t, e, effStart(t, e, chain, i)); out != i+3 {
			t.Error(out)
		}
	}
	pool := envPool(t, dsn)
	if n := effScan[int](t, pool, "SELECT count(*) FROM pawl.definition"); n != 1 {
		t.Errorf("%d definitions of one graph", n)
	}
	if n := effScan[int](t, pool, "SELECT count(*) FROM pawl.meta"); n != 1 {
		t.Errorf("%d rows in meta", n)
	}
	if broken, err := engines[0].Doctor(t.Context()); err != nil || len(broken) > 0 {
		t.Errorf("%v %v", broken, err)
	}
}
