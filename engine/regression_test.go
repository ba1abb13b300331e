package engine_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// a deferred constraint fails at COMMIT of a Tx step.
func TestRegressionDeferred(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	effExec(t, pool, "CREATE TABLE public.uniq (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
	effExec(t, pool, "INSERT INTO public.uniq VALUES (1)")
	w := steps.Declare[int, int]("deferred")
	var calls atomic.Int64
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.NewTx("ins", func(ctx context.Context, tx pgx.Tx, n int) (int, error) {
		calls.Add(1)
		_, err := tx.Exec(ctx, "INSERT INTO public.uniq VALUES ($1)", n)
		return n, err
	}, steps.RetryUnknown{Attempts: 1}))}})
	work(t, e)
	r := effStart(t, e, w, 1)
	if info := effState(t, e, r.ID, engine.Failed); info.Code != "23505" || calls.Load() != 1 {
		t.Errorf("recorded as %s after %d calls: %+v", info.Code, calls.Load(), info.History)
	}
}

// LookUp with a short MaxRuntime.
func TestRegressionAskTimeout(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("short")
	var asked, dead atomic.Int64
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("pay", func(ctx context.Context, n int) (int, error) {
		return 0, errors.New("answer lost")
	}, steps.MaxRuntime(3*time.Second)).LookUp(func(ctx context.Context, n int) (steps.Verdict[int], error) {
		asked.Add(1)
		if err := ctx.Err(); err != nil {
			dead.Add(1)
			return steps.Verdict[int]{}, err
		}
		return steps.Happened(7), nil
	}, time.Second))}})
	work(t, e)
	r := effStart(t, e, w, 1)
	if out := effSuccess(t, e, r); out != 7 || dead.Load() != 0 {
		t.Errorf("got %d; asked %d times, %d of them with a context that had ended", out, asked.Load(), dead.Load())
	}
}

// settled by a person, lapses to death, replayed: the body runs again.
func TestRegressionSettledReplay(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("settled")
	var charges atomic.Int64
	var hang atomic.Bool
	hang.Store(true)
	release := make(chan struct{})
	e := effEngine(t, pool, engine.Config{Drain: time.Second, Workflows: []steps.Definition{w.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
		p := steps.New("pay", func(ctx context.Context, n int) (int, error) {
			charges.Add(1)
			return 0, errors.New("answer lost")
		}, steps.Manual()).Do(f, in)
		return steps.New("ship", func(_ context.Context, n int) (int, error) { return n, nil }, steps.Idempotent(steps.Forever)).Do(f, steps.Map(p, func(n int) int {
			if hang.Load() {
				<-release
			}
			return n
		}))
	})}})
	work(t, e)
	r := effStart(t, e, w, 1)
	effState(t, e, r.ID, engine.Uncertain)
	if err := e.Resolve(context.Background(), r.ID, effPerson, engine.ItHappened(5, "seen")); err != nil {
		t.Fatal(err)
	}
	effUntil(t, "it has lapsed to death", func() bool {
		effExec(t, pool, "UPDATE pawl.job SET expires_at = granted_at WHERE run_id = $1 AND state = 'running'", r.ID)
		effExec(t, pool, "UPDATE pawl.job SET due_at = pawl.now() WHERE run_id = $1 AND state = 'pending'", r.ID)
		effExec(t, pool, "SELECT pg_notify('pawl', '')")
		return effGet(t, e, r.ID).State == engine.Failed
	})
	hang.Store(false)
	close(release)
	before := charges.Load()
	if err := e.Replay(context.Background(), r.ID, effPerson); err != nil {
		t.Fatal(err)
	}
	if effSuccess(t, e, r); charges.Load() != before {
		t.Error("charged again after a person said that it happened")
	}
}

// an explicit ClassUnknown of a LookUp step.
func TestRegressionMarkedUnknown(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("marked")
	var charges, asked atomic.Int64
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("pay", func(ctx context.Context, n int) (int, error) {
		charges.Add(1)
		return 0, &steps.Error{Class: steps.ClassUnknown, Err: errors.New("no idea")}
	}).LookUp(func(ctx context.Context, n int) (steps.Verdict[int], error) {
		asked.Add(1)
		return steps.Happened(7), nil
	}, time.Second))}})
	work(t, e)
	r := effStart(t, e, w, 1)
	if out := effSuccess(t, e, r); out != 7 || asked.Load() != 1 {
		t.Errorf("got %d, asked %d times", out, asked.Load())
	}
	if charges.Load() != 1 {
		t.Error("an effect of unknown outcome was executed again")
	}
}

// INPUT_CHANGED, ItNeverHappened: never gets anywhere.
func TestRegressionInputChanged(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("changed")
	var add, charges atomic.Int64
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
		return steps.New("pay", func(ctx context.Context, n int) (int, error) {
			if charges.Add(1) == 1 {
				add.Store(1) // the Map has changed
				return 0, errors.New("answer lost")
			}
			return n, nil
		}, steps.Manual()).Do(f, steps.Map(in, func(n int) int { return n + int(add.Load()) }))
	})}})
	work(t, e)
	r := effStart(t, e, w, 1)
	effState(t, e, r.ID, engine.Uncertain)
	if err := e.Resolve(context.Background(), r.ID, effPerson, engine.ItNeverHappened("seen")); err != nil {
		t.Fatal(err)
	}
	if out := effSuccess(t, e, r); out != 2 || charges.Load() != 2 {
		t.Errorf("got %d after %d charges: a person can't get it going", out, charges.Load())
	}
}

// tags with a NULL from SQL.
func TestRegressionNullTag(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("tagged")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("s", func(_ context.Context, n int) (int, error) { return n, nil }))}})
	effStart(t, e, w, 1)
	for _, tags := range []string{"ARRAY['a', NULL]", "ARRAY['']", "ARRAY[repeat('x', 201)]", "array_fill('x'::text, ARRAY[33])"} {
		if _, err := pool.Exec(context.Background(), "SELECT pawl.start('tagged', '1', tags => "+tags+")"); err == nil {
			t.Errorf("tags %s are taken", tags)
		}
	}
	if runs, err := e.List(context.Background(), engine.Filter{}); err != nil || len(runs) != 1 {
		t.Errorf("got %d runs, %v", len(runs), err)
	}
}

// an input that does not encode while an effect is asked about.
func TestRegressionAskEncode(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[float64, float64]("nan")
	var bad atomic.Bool
	var charges, asked atomic.Int64
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Define(func(f *steps.Flow, in steps.Ref[float64]) steps.Ref[float64] {
		return steps.New("pay", func(ctx context.Context, n float64) (float64, error) {
			charges.Add(1)
			bad.Store(true)
			return 0, errors.New("answer lost")
		}).LookUp(func(ctx context.Context, n float64) (steps.Verdict[float64], error) {
			asked.Add(1)
			return steps.StillUnknown[float64](time.Hour), nil
		}, time.Second).Do(f, steps.Map(in, func(n float64) float64 {
			if bad.Load() {
				return math.NaN()
			}
			return n
		}))
	})}})
	work(t, e)
	r := effStart(t, e, w, 1)
	effUntil(t, "a person is asked", func() bool {
		info := effGet(t, e, r.ID)
		return info.State == engine.Uncertain && len(info.Jobs) == 1 && info.Jobs[0].State == "uncertain" && info.Jobs[0].DueAt.IsZero()
	})
	if charges.Load() != 1 || asked.Load() != 0 {
		t.Errorf("%d charges, %d questions", charges.Load(), asked.Load())
	}
}

// replay of an old run whose key has been used again.
func TestRegressionReplayReused(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("reused")
	var fail atomic.Bool
	fail.Store(true)
	var done atomic.Int64
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("s", func(_ context.Context, n int) (int, error) {
		if fail.Load() {
			return 0, steps.Permanent("NO", nil)
		}
		done.Add(1)
		return n, nil
	}, steps.Idempotent(steps.Forever)))}})
	work(t, e)
	a := effStart(t, e, w, 1, engine.Key("k"))
	effState(t, e, a.ID, engine.Failed)
	fail.Store(false)
	b := effStart(t, e, w, 1, engine.Key("k"), engine.ReuseAfter(0))
	effSuccess(t, e, b)
	if err := e.Replay(context.Background(), a.ID, effPerson); !errors.Is(err, engine.ErrState) {
		t.Errorf("replay: %v", err)
	}
	if done.Load() != 1 {
		t.Error("two runs of one key have done it")
	}
}
