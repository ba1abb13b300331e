package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// many runs as many runs as there are, and expects that no lease lapses.
func many(t *testing.T, pool *pgxpool.Pool, e *engine.Engine, w steps.Workflow[int, int], n int) {
	t.Helper()
	if _, err := engine.StartMany(context.Background(), e, w, make([]int, n)); err != nil {
		t.Fatal(err)
	}
	work(t, e)
	effUntil(t, "all have ended", func() bool {
		return effScan[int](t, pool, "SELECT count(*) FROM pawl.run WHERE outcome IS NULL") == 0
	})
	if s := effScan[int](t, pool, "SELECT count(*) FROM pawl.run WHERE outcome = 'succeeded'"); s != n {
		t.Errorf("%d of %d succeeded", s, n)
	}
	if l := effScan[int](t, pool, "SELECT count(*) FROM pawl.history WHERE code = 'LEASE_EXPIRED'"); l != 0 {
		t.Errorf("%d leases lapsed", l)
	}
}

// Transactional steps wait for their turn without losing their leases.
func TestRegressionManyTransactions(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, pgtest.Database(t), 4)
	w := steps.Declare[int, int]("starve")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.NewTx("ins", func(ctx context.Context, tx pgx.Tx, n int) (int, error) {
		_, err := tx.Exec(ctx, "SELECT pg_sleep(0.1)")
		return n, err
	}, steps.Lease(time.Second)))}})
	many(t, pool, e, w, 40)
}

// Steps that use the pool themselves can't cost the worker its session.
func TestRegressionBodiesTakeThePool(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, pgtest.Database(t), 6)
	observer := effPool(t, pool.Config().ConnString())
	w := steps.Declare[int, int]("shared")
	e := effEngine(t, pool, engine.Config{Session: 2 * time.Second, Workflows: []steps.Definition{w.Of(steps.New("q", func(ctx context.Context, n int) (int, error) {
		_, err := pool.Exec(ctx, "SELECT pg_sleep(1)")
		return n, err
	}))}})
	many(t, observer, e, w, 40)
	if s := effScan[int](t, observer, "SELECT count(*) FROM pawl.session"); s != 1 {
		t.Errorf("%d sessions", s)
	}
}

type isPanics struct{ p *int }

func (isPanics) Error() string   { return "declined" }
func (b isPanics) Is(error) bool { return *b.p == 0 }

// An error whose methods panic ends its attempt, not the process.
func TestRegressionErrorPanics(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("panics")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("x", func(context.Context, int) (int, error) {
		return 0, steps.Permanent("DECLINED", isPanics{})
	}, steps.RetryUnknown{Attempts: 1}))}})
	work(t, e)
	effState(t, e, effStart(t, e, w, 1).ID, engine.Failed)
}

// A cursor whose last write was given up unanswered takes no more: that write
// may still arrive, and could not be told from the next.
func TestRegressionLateCursor(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool, proxy := effProxy(t, url)
	direct := effPool(t, url)
	effExec(t, direct, "CREATE TABLE public.chunks (n int)")
	w := steps.Declare[int, int]("late")
	var stalled atomic.Bool
	proxy.OnExecute(func(sql string) pgproxy.Action {
		if effStatement(sql, "SaveCursor") && !stalled.Swap(true) {
			return pgproxy.Stall
		}
		return pgproxy.Pass
	})
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.NewLong("long", func(ctx context.Context, n int, cur *steps.Cursor[int]) (int, error) {
		if cur.At() == 0 {
			short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			defer cancel()
			if err := cur.Commit(short, 1); err == nil {
				return 0, errors.New("the first write was to stall")
			}
			proxy.Release() // the network heals
			for effScan[int](t, direct, "SELECT count(*) FROM pawl.cursor") == 0 {
				time.Sleep(5 * time.Millisecond)
			}
		}
		return n, cur.CommitTx(ctx, 2, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO public.chunks VALUES (2)")
			return err
		})
	}))}})
	work(t, e)
	r := effStart(t, e, w, 7)
	effHurried(t, direct, e, r.ID, engine.Succeeded)
	if rows := effScan[int](t, direct, "SELECT count(*) FROM public.chunks"); rows != 1 {
		t.Errorf("the chunk is there %d times", rows)
	}
}

// A corrected input has no place in it yet.
func TestRegressionReplayCursor(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[string, int]("file")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.NewLong("import", func(ctx context.Context, file string, cur *steps.Cursor[int]) (int, error) {
		at := cur.At()
		if err := cur.Commit(ctx, 5000); err != nil || file == "wrong" {
			return 0, steps.Permanent("BAD_FILE", err)
		}
		return at, nil
	}))}})
	work(t, e)
	r := effStart(t, e, w, "wrong")
	effState(t, e, r.ID, engine.Failed)
	if err := e.Replay(context.Background(), r.ID, effPerson, engine.WithInput("right")); err != nil {
		t.Fatal(err)
	}
	if at := effSuccess(t, e, r); at != 0 {
		t.Errorf("it went on at %d", at)
	}
}

// Cursor rows that somebody holds delay only their own steps.
func TestRegressionLockedCursors(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	gate := make(chan struct{})
	in := make(chan bool, 4)
	w, long := steps.Declare[int, int]("plain"), steps.Declare[int, int]("long")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("p", same)),
		long.Of(steps.NewLong("l", func(ctx context.Context, n int, cur *steps.Cursor[int]) (int, error) {
			if err := cur.Commit(ctx, 1); err != nil {
				return 0, err
			}
			in <- true
			<-gate
			return n, nil
		}))}})
	work(t, e)
	var held []engine.Run[int]
	for range 4 {
		held = append(held, effStart(t, e, long, 1))
		effSignal(t, "a long step", in)
	}
	tx, err := pool.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(context.Background(), "SELECT FROM pawl.cursor FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	close(gate)
	began := time.Now()
	for range 20 {
		effSuccess(t, e, effStart(t, e, w, 1))
	}
	if d := time.Since(began); d > 10*time.Second { // at rest it takes a fraction of one
		t.Errorf("the others took %v", d)
	}
	if err := tx.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, r := range held {
		effSuccess(t, e, r)
	}
}

// A claim without an answer does not hold up a drain.
func TestRegressionDrainStuckClaim(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool, proxy := effProxy(t, url)
	w := steps.Declare[int, int]("stuck")
	def := w.Of(steps.New("p", same))
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{def}, Drain: time.Second})
	other := effEngine(t, effPool(t, url), engine.Config{Workflows: []steps.Definition{def}})
	stuck := make(chan bool, 100)
	stop := work(t, e)
	effSuccess(t, e, effStart(t, e, w, 1))
	proxy.OnExecute(func(sql string) pgproxy.Action {
		if effStatement(sql, "Claim") {
			stuck <- true
			return pgproxy.Stall
		}
		return pgproxy.Pass
	})
	r := effStart(t, other, w, 1)
	effSignal(t, "the claim", stuck)
	began := time.Now()
	stop()
	if d := time.Since(began); d > 8*time.Second { // the claim would have been waited for twice as long
		t.Errorf("with a second to drain Work ended after %v", d)
	}
	work(t, other)
	proxy.Release()
	effSuccess(t, other, r)
}

// The receipt of an effect that a drain has given up on is kept as evidence.
func TestRegressionAbandonedReceipt(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, string]("receipt")
	begun, gate := make(chan bool, 1), make(chan bool)
	e := effEngine(t, pool, engine.Config{Drain: 200 * time.Millisecond, Workflows: []steps.Definition{w.Of(steps.New("pay", func(context.Context, int) (string, error) {
		begun <- true
		<-gate
		return "receipt-1", nil
	}, steps.Manual()))}})
	stop := work(t, e)
	r := effStart(t, e, w, 1)
	effSignal(t, "the body", begun)
	stop()
	close(gate)
	effUntil(t, "the evidence", func() bool { return len(effGet(t, e, r.ID).Evidence) == 1 })
}

type paid struct{ Paid int }

// A person's word has to be of the step's type.
func TestRegressionWordOfOtherType(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, paid]("word")
	def := w.Of(steps.New("pay", func(context.Context, int) (paid, error) { return paid{}, context.DeadlineExceeded }, steps.Manual()))
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{def}})
	stranger := effEngine(t, pool, engine.Config{})
	work(t, e)
	r := effStart(t, e, w, 1)
	effState(t, e, r.ID, engine.Uncertain)
	for _, v := range []any{nil, map[string]int{"paidd": 5}, "5"} {
		if err := e.Resolve(context.Background(), r.ID, effPerson, engine.ItHappened(v, "seen")); err == nil {
			t.Errorf("%v was taken", v)
		}
	}
	if err := stranger.Resolve(context.Background(), r.ID, effPerson, engine.ItHappened(map[string]int{"paidd": 5}, "seen")); err != nil {
		t.Fatal(err)
	}
	effUntil(t, "it is back", func() bool { return effGet(t, e, r.ID).State == engine.Uncertain })
	if err := stranger.Resolve(context.Background(), r.ID, effPerson, engine.ItHappened(map[string]int{"Paid": 5}, "seen")); err != nil {
		t.Fatal(err)
	}
	if out := effSuccess(t, e, r); out.Paid != 5 {
		t.Errorf("got %+v", out)
	}
}

// A COMMIT by SQL in a transactional step is found out, and is not repeated.
func TestRegressionCommitBySQL(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	effExec(t, pool, "CREATE TABLE public.h (n int)")
	for name, err := range map[string]error{"returns": nil, "fails": steps.Transient(context.DeadlineExceeded)} {
		w := steps.Declare[int, int](name)
		e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.NewTx("p", func(ctx context.Context, tx pgx.Tx, n int) (int, error) {
			for _, sql := range []string{"INSERT INTO public.h VALUES (1)", "COMMIT"} {
				if _, err := tx.Exec(ctx, sql); err != nil {
					return 0, err
				}
			}
			return n, err
		}))}})
		work(t, e)
		if info := effState(t, e, effStart(t, e, w, 1).ID, engine.Failed, engine.Succeeded); info.Code != "TX_ENDED" {
			t.Errorf("%s: %s %s", name, info.State, info.Code)
		}
	}
}

// Waiting for a run whose transaction was rolled back ends.
func TestRegressionWaitForNothing(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("nothing")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("p", same))}})
	tx, err := pool.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	r, err := engine.StartTx(context.Background(), e, tx, w, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
	later := effStart(t, e, w, 1, engine.After(40*time.Second))
	work(t, e)
	if _, err := effResult(t, e, r); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("told %v", err)
	}
	effHurry(t, pool, later.ID)
	effSuccess(t, e, later)
}

// What a CommitTx has thrown is no word on anything, whatever a classifier says.
func TestRegressionThrownWithin(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("within")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.NewLong("l", func(ctx context.Context, n int, cur *steps.Cursor[int]) (int, error) {
		return n, cur.CommitTx(ctx, 1, func(pgx.Tx) error { panic("oh no") })
	}, steps.RetryUnknown{Attempts: 1}, steps.Classifier(func(err error) error { return steps.Permanent("BY_RULE", err) })))}})
	work(t, e)
	info := effState(t, e, effStart(t, e, w, 1).ID, engine.Failed)
	if h := info.History[0]; h.Class != "unknown" || h.Code != "PANIC" {
		t.Errorf("recorded as %s, %s", h.Class, h.Code)
	}
}
