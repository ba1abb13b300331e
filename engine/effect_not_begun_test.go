package engine_test

import (
	"fmt"
	"sync/atomic"
	"testing"

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
	healthy := effEngine(t, pool, engine.Config{Name: "healthy", Workflows: effCharging(b)})
	var runs []engine.Run[string]
	for i, w := range []steps.Workflow[effOrder, string]{effByLookUp, effByPerson, effBySilent, effByKey} {
		runs = append(runs, effStart(t, healthy, w, effOrder{ID: fmt.Sprint("order-", i), Forgetful: true}))
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
