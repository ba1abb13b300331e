package engine_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// TestHandOversAreHot: the job's row moves in place, whatever indexes people
// look by: only claims touch an index, and updates for which a page had no room.
// Were an index in the way, none of the others would be HOT.
func TestHandOversAreHot(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := effPool(t, url)
	var calls atomic.Int64
	const runs, length = 200, 10
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{chainOf(length, &calls)}})
	stop := work(t, e)
	started, err := engine.StartMany(context.Background(), e, chain, make([]int, runs))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range started {
		effSuccess(t, e, r)
	}
	stop()
	pool.Close() // a session's statistics are told when it ends
	var updated, hot int64
	reader := effPool(t, url)
	effUntil(t, "the statistics", func() bool {
		effExec(t, reader, "SELECT pg_stat_clear_snapshot()")
		updated = effScan[int64](t, reader, "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relid = 'pawl.job'::regclass")
		hot = effScan[int64](t, reader, "SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'pawl.job'::regclass")
		return updated >= runs*length
	})
	if t.Logf("%d of %d updates were HOT", hot, updated); hot*2 < updated {
		t.Errorf("%d of %d updates were HOT", hot, updated)
	}
}
