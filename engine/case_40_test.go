package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

var (
	familiar = steps.Declare[int, int]("familiar")
	foreign  = steps.Declare[int, int]("foreign")
)

func plus(n int) func(context.Context, int) (int, error) {
	return func(_ context.Context, i int) (int, error) { return i + n, nil }
}

func twoSteps(w steps.Workflow[int, int], one, two steps.Step[int, int]) steps.Definition {
	return w.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] { return two.Do(f, one.Do(f, in)) })
}

// strandedOf is the runs that List shows as stranded; Get must say the same.
func strandedOf(t *testing.T, e *engine.Engine) map[string]bool {
	t.Helper()
	list, err := e.List(context.Background(), engine.Filter{States: []engine.State{engine.Stranded}})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, r := range list {
		ids[r.ID] = true
		if info := effGet(t, e, r.ID); len(info.Jobs) != 1 || !info.Jobs[0].Stranded || info.State != engine.Running {
			t.Errorf("listed as stranded, and Get says %+v", info)
		}
	}
	return ids
}

// TestCase40 mixes runs of workflows and at steps that a worker does not know
// among those that it does. The others go on; those are stranded, shown as
// that, untouched, and done by the first worker that knows them.
func TestCase40(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	old := func() steps.Definition {
		return twoSteps(foreign, steps.New("a", plus(1)), steps.New("b", plus(10)))
	}
	known := func() steps.Definition {
		return twoSteps(familiar, steps.New("a", plus(1)), steps.New("b", plus(1)))
	}
	// A process that starts runs of both has been here and does not work.
	e := envEngine(t, envPool(t, dsn), engine.Config{Workflows: []steps.Definition{old(), known()}})
	var others, mixed []engine.Run[int]
	for i := range 10 {
		others = append(others, effStart(t, e, foreign, 100*i))
		mixed = append(mixed, effStart(t, e, familiar, i))
	}
	// One worker has other steps under the same name, one has never heard of it.
	changed := envEngine(t, envPool(t, dsn), engine.Config{Workflows: []steps.Definition{known(),
		twoSteps(foreign, steps.New("a", plus(1)), steps.New("c", plus(1)))}})
	stranger := envEngine(t, envPool(t, dsn), engine.Config{Workflows: []steps.Definition{known()}})
	stop := []func(){work(t, changed), work(t, stranger)}
	for i, r := range mixed {
		if out := effSuccess(t, e, r); out != i+2 {
			t.Error(out)
		}
	}
	if fresh := effSuccess(t, e, effStart(t, e, foreign, 0)); fresh != 2 { // the graph that was made last
		t.Error(fresh)
	}
	ids := strandedOf(t, e)
	for _, r := range others {
		if !ids[r.ID] {
			t.Errorf("run %s is not shown as stranded", r.ID)
		}
		if info := effGet(t, e, r.ID); len(info.History) != 0 || info.Jobs[0].Attempt != 0 || info.Jobs[0].Token != 0 {
			t.Errorf("touched: %+v", info)
		}
	}
	if len(ids) != len(others) {
		t.Errorf("%d stranded, want %d", len(ids), len(others))
	}
	for _, s := range stop {
		s()
	}
	work(t, envEngine(t, envPool(t, dsn), engine.Config{Workflows: []steps.Definition{old()}}))
	for i, r := range others {
		if out := effSuccess(t, e, r); out != 100*i+11 {
			t.Error(out)
		}
	}
	if ids := strandedOf(t, e); len(ids) != 0 {
		t.Errorf("still stranded: %v", ids)
	}
}

// TestCase40HalfKnown: a worker that knows the rest of the graph from a step
// on carries on the runs that are there, and leaves those before it.
func TestCase40HalfKnown(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	var open atomic.Bool
	waits := steps.New("b", func(_ context.Context, n int) (int, error) {
		if !open.Load() {
			return 0, steps.Snooze(50 * time.Millisecond)
		}
		return n + 10, nil
	})
	e := envEngine(t, envPool(t, dsn), engine.Config{Workflows: []steps.Definition{twoSteps(foreign, steps.New("a", plus(1)), waits)}})
	stop := work(t, e)
	at := effStart(t, e, foreign, 1)
	effUntil(t, "the run is at the second step", func() bool { return effGet(t, e, at.ID).Step == "b" })
	stop()
	behind := effStart(t, e, foreign, 2)

	half := envEngine(t, envPool(t, dsn), engine.Config{Workflows: []steps.Definition{
		foreign.Of(steps.New("b", plus(1000)))}}) // of the run's input, in its graph
	stop = work(t, half)
	if out := effSuccess(t, e, at); out != 1001 {
		t.Errorf("got %d", out)
	}
	if ids := strandedOf(t, e); len(ids) != 1 || !ids[behind.ID] {
		t.Errorf("stranded: %v, want %s", ids, behind.ID)
	}
	stop()
	open.Store(true)
	work(t, e)
	if out := effSuccess(t, e, behind); out != 13 {
		t.Errorf("got %d", out)
	}
}

// TestCase40InTheBatch puts a job of an unknown workflow into a known one's
// way, as a bug or a hand in the tables might. It is handed back, costs no
// attempt, and nothing else in the batch notices.
func TestCase40InTheBatch(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	both := engine.Config{Workflows: []steps.Definition{foreign.Of(steps.New("step", plus(10))), familiar.Of(steps.New("step", plus(1)))}}
	e := envEngine(t, pool, both)
	odd := effStart(t, e, foreign, 1)
	right := effScan[int](t, pool, "SELECT route FROM pawl.job")
	effExec(t, pool, `UPDATE pawl.job SET route = (SELECT r.id FROM pawl.route r JOIN pawl.definition d ON d.id = r.definition
		WHERE d.workflow = 'familiar' AND r.priority = 1)`)
	runs, err := engine.StartMany(t.Context(), e, familiar, make([]int, 50))
	if err != nil {
		t.Fatal(err)
	}
	log := &envLog{}
	stop := work(t, envEngine(t, pool, engine.Config{Logger: log.logger(), Workflows: []steps.Definition{familiar.Of(steps.New("step", plus(1)))}}))
	for _, r := range runs {
		if out := effSuccess(t, e, r); out != 1 {
			t.Error(out)
		}
	}
	effUntil(t, "the odd one is handed back", func() bool { return len(effGet(t, e, odd.ID).History) > 0 })
	if log.said("a claimed job is not understood here") == 0 {
		t.Error("nobody was told")
	}
	stop()
	info := effGet(t, e, odd.ID)
	for _, h := range info.History {
		if h.Event != "handed_back" || h.To != "pending" {
			t.Errorf("%+v", h)
		}
	}
	if len(info.Jobs) != 1 || info.Jobs[0].Attempt != 0 {
		t.Errorf("%+v", info.Jobs)
	}
	effExec(t, pool, "UPDATE pawl.job SET route = $1", right)
	work(t, envEngine(t, pool, both))
	if out := effSuccess(t, e, odd); out != 11 {
		t.Errorf("got %d", out)
	}
}
