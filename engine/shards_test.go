package engine_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// TestShards runs on eight shards all that runs on one: keyed runs spread over
// them and end, and every verb finds every run.
func TestShards(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	effExec(t, pool, "CREATE TABLE public.mine (what text)")
	one := envTour(t, pool, "public.mine")

	wide := pgtest.Pool(t)
	effExec(t, wide, "CREATE TABLE public.mine (what text)")
	effExec(t, wide, "UPDATE pawl.meta SET shards = 8") // as a schema made with that many has
	if eight := envTour(t, wide, "public.mine"); !slices.Equal(eight, one) {
		t.Errorf("on eight shards happened\n%q\non one\n%q", eight, one)
	}

	var calls atomic.Int64
	e := envEngine(t, wide, engine.Config{Workflows: []steps.Definition{chainOf(20, &calls)}})
	work(t, e)
	const n = 50
	var runs []engine.Run[int]
	for i := range n {
		opts := []engine.StartOption{engine.Key(fmt.Sprint("k", i))}
		if i%5 == 4 {
			opts = nil // without a key: anywhere
		}
		runs = append(runs, effStart(t, e, chain, i, opts...))
	}
	for i, r := range runs {
		if out := effSuccess(t, e, r); out != i+20 {
			t.Errorf("run %d: %d", i, out)
		}
		info := effGet(t, e, r.ID)
		if info.State != engine.Succeeded || len(info.History) != 20 {
			t.Errorf("run %d: %+v", i, info)
		}
		if h, err := engine.Handle(t.Context(), e, chain, r.ID); err != nil || h.ID != r.ID {
			t.Errorf("Handle: %+v %v", h, err)
		}
		if i%5 == 4 {
			continue
		}
		if f, err := engine.Find(t.Context(), e, chain, fmt.Sprint("k", i)); err != nil || f.ID != r.ID {
			t.Errorf("Find: %+v %v", f, err)
		}
		if again := effStart(t, e, chain, i, engine.Key(fmt.Sprint("k", i))); !again.Existed || again.ID != r.ID {
			t.Errorf("started again: %+v", again)
		}
	}
	if calls.Load() != 20*n {
		t.Errorf("%d calls", calls.Load())
	}
	list, err := e.List(t.Context(), engine.Filter{Workflow: chain.Name()})
	if err != nil || len(list) != n {
		t.Errorf("%d runs listed, %v", len(list), err)
	}
	if s := effScan[int](t, wide, "SELECT count(DISTINCT shard) FROM pawl.run WHERE workflow = 'chain'"); s < 6 {
		t.Errorf("only %d shards are used", s)
	}
	if s := effScan[int](t, wide, "SELECT count(*) FROM pawl.run WHERE key IS NOT NULL AND shard <> pawl.shard_of(key, 8::smallint)"); s > 0 {
		t.Errorf("%d keyed runs are on a shard that is not their key's", s)
	}
	if err := e.Cancel(t.Context(), "00000000-0000-7008-8000-000000000000", tourBy); err == nil { // shard 8 of 0 to 7
		t.Error("a run of a shard that is not there")
	}
}
