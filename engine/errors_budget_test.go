package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// A class has its budget of attempts, and the failures of another class do not
// use it up; snoozing uses up nothing; the last failure is told to who waits.
func TestErrorBudgets(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	var n atomic.Int64
	w := steps.Declare[int, int]("budgets")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("step", func(context.Context, int) (int, error) {
		switch n.Add(1) % 3 {
		case 1:
			return 0, steps.Transient(errPlain)
		case 2:
			return 0, steps.Snooze(time.Millisecond)
		}
		return 0, errPlain
	}, steps.Retry{Attempts: 10, Delay: time.Millisecond, MaxDelay: 2 * time.Millisecond}, steps.RetryUnknown{Attempts: 3, Delay: time.Millisecond, MaxDelay: 2 * time.Millisecond}))}})
	work(t, e)
	r := effStart(t, e, w, 1)
	_, err := effResult(t, e, r)
	var failed *engine.FailedError
	if !errors.As(err, &failed) || failed.Step != "step" || failed.Code != "UNKNOWN" || failed.Run != r.ID || !strings.Contains(failed.Reason, "3 failures of class unknown") {
		t.Fatal(err)
	}
	info := effGet(t, e, r.ID)
	if n.Load() != 9 || len(effRows(info, "snoozed")) != 3 || len(effRows(info, "retried")) != 5 || failed.Attempt != 6 {
		t.Errorf("%d calls, dead at attempt %d: %v", n.Load(), failed.Attempt, effEvents(info))
	}
	// Replayed it has its budgets anew.
	if err := e.Replay(context.Background(), r.ID, effPerson); err != nil {
		t.Fatal(err)
	}
	effUntil(t, "the budget to be spent again", func() bool { return n.Load() == 18 && effGet(t, e, r.ID).State == engine.Failed })
}

// Each class of failure has its own backoff: a random delay up to a limit that
// begins at Delay and doubles up to MaxDelay, by the count of that class alone.
func TestErrorBackoff(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	noteDelays(t, pool)
	// The upper half of each limit is beyond the one before.
	budgets := map[string]struct {
		err    error
		limits []time.Duration
	}{
		"transient": {steps.Transient(errPlain), []time.Duration{1000 * time.Hour, 2000 * time.Hour, 3000 * time.Hour, 3000 * time.Hour}},
		"unknown":   {errPlain, []time.Duration{10 * time.Hour, 20 * time.Hour, 40 * time.Hour, 70 * time.Hour}},
	}
	w := steps.Declare[string, int]("backoff")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("step", func(_ context.Context, class string) (int, error) {
		return 0, budgets[class].err
	}, steps.Retry{Attempts: 5, Delay: 1000 * time.Hour, MaxDelay: 3000 * time.Hour}, steps.RetryUnknown{Attempts: 5, Delay: 10 * time.Hour, MaxDelay: 70 * time.Hour}))}})
	work(t, e)
	for class, b := range budgets {
		var runs []engine.Run[int]
		for range 24 {
			runs = append(runs, effStart(t, e, w, class))
		}
		after := make([][]time.Duration, len(b.limits)) // so many failures
		for _, r := range runs {
			effUntil(t, "the budget to be spent", func() bool {
				hurryAll(t, pool)
				return effGet(t, e, r.ID).State == engine.Failed
			})
			for i, d := range delays(t, pool, r.ID, "retried") {
				after[i] = append(after[i], d)
			}
		}
		for i, limit := range b.limits {
			spreadUpTo(t, fmt.Sprintf("%s, failure %d", class, i+1), after[i], limit)
		}
	}
}

// The budget of time counts from the first failure.
func TestErrorBudgetOfTime(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("within")
	var n atomic.Int64
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("step", func(context.Context, int) (int, error) {
		n.Add(1)
		return 0, steps.RetryAfter(24*time.Hour, errPlain)
	}, steps.Retry{Attempts: 100, Within: time.Hour}))}})
	work(t, e)
	r := effStart(t, e, w, 1)
	for i := range 2 {
		effUntil(t, "an attempt to fail", func() bool { return n.Load() == int64(i+1) && effGet(t, e, r.ID).State == engine.Scheduled })
		effHurry(t, pool, r.ID)
	}
	effUntil(t, "the third", func() bool { return n.Load() == 3 && effGet(t, e, r.ID).State == engine.Scheduled })
	effExec(t, pool, "UPDATE pawl.job SET failed_at = failed_at - interval '61 minutes'")
	effHurry(t, pool, r.ID)
	if info := effState(t, e, r.ID, engine.Failed); n.Load() != 4 || !strings.Contains(info.History[3].Reason, "failing for longer than 1h") {
		t.Errorf("%d attempts: %+v", n.Load(), info.History)
	}
}

// A Map that panics fails the place that it makes the value for: the first
// step, one in the middle, the result.
func TestErrorMapPanics(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[string, string]("maps")
	var mend atomic.Bool
	breaks := func(where string) func(string) string {
		return func(s string) string {
			if s == where && !mend.Load() {
				panic("a Map broke: " + where)
			}
			return s
		}
	}
	same := func(_ context.Context, s string) (string, error) { return s, nil }
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Define(func(f *steps.Flow, in steps.Ref[string]) steps.Ref[string] {
		a := steps.New("first", same).Do(f, steps.Map(in, breaks("first")))
		b := steps.New("middle", same, steps.Idempotent(steps.Forever)).Do(f, steps.Map(a, breaks("middle")))
		return steps.Map(b, breaks("result"))
	})}})
	work(t, e)
	places := []string{"first", "middle", "result"}
	runs := map[string]engine.Run[string]{}
	for _, p := range places {
		runs[p] = effStart(t, e, w, p)
	}
	for _, p := range places {
		effHurried(t, pool, e, runs[p].ID, engine.Failed)
		_, err := effResult(t, e, runs[p])
		var failed *engine.FailedError
		if !errors.As(err, &failed) || failed.Step != p || failed.Code != "PANIC" || failed.Attempt != 5 || !strings.Contains(failed.Reason, "a Map broke: "+p) {
			t.Errorf("%s: %v", p, err)
		}
	}
	mend.Store(true)
	for _, p := range places {
		if err := e.Replay(context.Background(), runs[p].ID, effPerson); err != nil {
			t.Fatal(err)
		}
		if out := effSuccess(t, e, runs[p]); out != p {
			t.Errorf("%s: got %q", p, out)
		}
	}
}

// An input that the step's type can't hold is no trouble that passes. A
// corrected input mends it; one that does not fit either does not.
func TestErrorInputDoesNotDecode(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("numbers")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("double", func(_ context.Context, n int) (int, error) { return 2 * n, nil }))}})
	work(t, e)
	var id string
	if err := pool.QueryRow(ctx, `SELECT pawl.start('numbers', '"seven"')`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	dead := func(history int) {
		t.Helper()
		effUntil(t, "the run to fail", func() bool {
			i := effGet(t, e, id)
			return i.State == engine.Failed && i.Code == "DECODE" && len(i.History) == history
		})
	}
	dead(1)
	if err := e.Replay(ctx, id, effPerson, engine.WithInput("eight")); err == nil || !strings.Contains(err.Error(), "cannot unmarshal") {
		t.Errorf("an input of another type: %v", err)
	}
	stranger := effEngine(t, pool, engine.Config{}) // it can't know
	if err := stranger.Replay(ctx, id, effPerson, engine.WithInput("eight")); err != nil {
		t.Fatal(err)
	}
	dead(3)
	if err := e.Replay(ctx, id, effPerson, engine.WithInput(9)); err != nil {
		t.Fatal(err)
	}
	r, err := engine.Handle(ctx, e, w, id)
	if err != nil {
		t.Fatal(err)
	}
	if out := effSuccess(t, e, r); out != 18 {
		t.Errorf("got %d", out)
	}
}

// What a transactional step wrote is not there when the step failed in any way,
// its output's included; a deadlock runs the whole body again.
func TestErrorInTransaction(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	effExec(t, pool, "CREATE TABLE public.written (what text)")
	var again atomic.Int64
	w := steps.Declare[string, errOut]("in-tx")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.NewTx("write", func(ctx context.Context, tx pgx.Tx, what string) (errOut, error) {
		if _, err := tx.Exec(ctx, "INSERT INTO public.written VALUES ($1)", what); err != nil {
			return errOut{}, err
		}
		switch what {
		case "permanent":
			return errOut{}, steps.Permanent("NO", nil)
		case "panic":
			panic("in a transaction")
		case "nil pointer":
			var e *errNil
			return errOut{}, e
		case "output":
			return errOut{"panic"}, nil
		case "commit":
			if tx.Commit(ctx) == nil || tx.Rollback(ctx) == nil {
				return errOut{}, steps.Permanent("IT_ENDED", nil)
			}
		case "serialization":
			if again.Add(1) == 1 {
				_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE EXCEPTION 'meet' USING ERRCODE = '40001'; END $$")
				return errOut{}, err
			}
		}
		return errOut{}, nil
	}, steps.RetryUnknown{Attempts: 1}))}})
	work(t, e)
	for what, code := range map[string]string{"permanent": "NO", "panic": "PANIC", "nil pointer": "PANIC", "output": "ENCODE", "commit": "", "serialization": "", "well": ""} {
		r := effStart(t, e, w, what)
		_, err := effResult(t, e, r)
		var failed *engine.FailedError
		if errors.As(err, &failed) && failed.Code != code || code == "" && err != nil || code != "" && err == nil {
			t.Errorf("%s: %v", what, err)
		}
		rows := 1
		if code != "" {
			rows = 0
		}
		if n := effScan[int](t, pool, "SELECT count(*) FROM public.written WHERE what = $1", what); n != rows {
			t.Errorf("%s: %d rows", what, n)
		}
		if info := effGet(t, e, r.ID); len(info.History) != 1 {
			t.Errorf("%s: %v", what, effEvents(info))
		}
	}
}
