package engine_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// A worker without work says little: after its start, a heartbeat each third
// of its session and what maintenance needs.
func TestIdleIsQuiet(t *testing.T) {
	t.Parallel()
	pool, proxy := effProxy(t, pgtest.Database(t))
	w := steps.Declare[int, int]("idle")
	e := effEngine(t, pool, engine.Config{Session: 4 * time.Second, Workflows: []steps.Definition{w.Of(steps.New("s", same))}})
	var pulses, others atomic.Int64
	maintained := make(chan struct{})
	once := sync.OnceFunc(func() { close(maintained) })
	proxy.OnExecute(func(sql string) pgproxy.Action {
		if effStatement(sql, "StrandedRoutes") { // the last that maintenance says
			once()
		}
		return pgproxy.Pass
	})
	work(t, e)
	effSuccess(t, e, effStart(t, e, w, 7))
	effSignal(t, "maintenance", maintained)
	effUntil(t, "it is idle", func() bool { // what follows the run has been said
		others.Store(0)
		proxy.OnExecute(func(sql string) pgproxy.Action {
			if effStatement(sql, "Pulse") {
				pulses.Add(1)
			} else if strings.HasPrefix(sql, "-- name: ") {
				others.Add(1)
			}
			return pgproxy.Pass
		})
		time.Sleep(300 * time.Millisecond) // nothing is waited for: that nothing comes is what is looked for
		return others.Load() == 0
	})
	pulses.Store(0)
	began := time.Now()
	effUntil(t, "four heartbeats", func() bool { return pulses.Load() == 4 })
	if d := time.Since(began); d < 3*time.Second || others.Load() > 2 {
		t.Errorf("four heartbeats came within %v, with %d other statements", d, others.Load())
	}
}
