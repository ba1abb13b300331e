package engine_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// TestCase18 loses the answers of commits at random: of claims, of finished
// steps. They took place, so nothing may run again, nothing may look like a
// conflict, and all the runs end with the right result.
func TestCase18(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	pool, proxy := envProxied(t, dsn)
	log := &envLog{}
	var calls atomic.Int64
	e := envEngine(t, pool, engine.Config{Slots: 20, Session: time.Minute, Logger: log.logger(), Workflows: []steps.Definition{chainOf(4, &calls)}})
	runs, err := engine.StartMany(context.Background(), e, chain, make([]int, 200))
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	proxy.OnExecute(func(sql string) pgproxy.Action {
		mu.Lock()
		defer mu.Unlock()
		if envStatement(sql, "Transition", "Claim") && random.IntN(8) == 0 {
			return pgproxy.CutAfter
		}
		return pgproxy.Pass
	})
	work(t, e)
	for _, r := range runs {
		if out := effSuccess(t, e, r); out != 4 {
			t.Errorf("got %d", out)
		}
	}
	t.Logf("seed %d, %d answers lost", seed, proxy.Fired(pgproxy.CutAfter))
	if proxy.Fired(pgproxy.CutAfter) < 5 {
		t.Error("hardly an answer was lost")
	}
	if n := calls.Load(); n != 800 {
		t.Errorf("%d calls of 800 steps", n)
	}
	for _, conflict := range []string{"lease was lost", "lease expired", "session"} {
		if n := log.said(conflict); n > 0 {
			t.Errorf("%d times %q:\n%s", n, conflict, log.last(20))
		}
	}
	// What was handed back after a claim in doubt costs no attempt.
	if n := effScan[int](t, envPool(t, dsn), "SELECT count(*) FROM pawl.history WHERE event = 'completed' AND attempt <> 1 OR event NOT IN ('completed', 'handed_back')"); n > 0 {
		t.Errorf("%d transitions that should not be there", n)
	}
}
