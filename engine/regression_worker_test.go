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
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

func same(_ context.Context, n int) (int, error) { return n, nil }

func inARow(w steps.Workflow[int, int], ss ...steps.Step[int, int]) steps.Definition {
	return w.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
		for _, s := range ss {
			in = s.Do(f, in)
		}
		return in
	})
}

// A worker whose heartbeats fail until its session is lost, and go on failing,
// opens a new session and works on.
func TestRegressionPulseFails(t *testing.T) {
	t.Parallel()
	pool, proxy := effProxy(t, pgtest.Database(t))
	w := steps.Declare[int, int]("pulse")
	var lost, sessions atomic.Int64
	e := effEngine(t, pool, engine.Config{Session: 500 * time.Millisecond, Workflows: []steps.Definition{w.Of(steps.New("s", func(ctx context.Context, n int) (int, error) {
		if n == 0 { // what was held when the trust ended
			<-ctx.Done()
			lost.Add(1)
		}
		return n, context.Cause(ctx)
	}))}})
	proxy.OnExecute(func(sql string) pgproxy.Action {
		switch {
		case effStatement(sql, "OpenSession"):
			sessions.Add(1)
		case effStatement(sql, "Pulse"):
			return pgproxy.CutBefore
		}
		return pgproxy.Pass
	})
	work(t, e)
	held := effStart(t, e, w, 0)
	effUntil(t, "new sessions are opened", func() bool { return sessions.Load() > 2 && lost.Load() > 0 })
	proxy.OnExecute(nil)
	if err := e.Cancel(context.Background(), held.ID, effPerson); err != nil {
		t.Fatal(err)
	}
	effState(t, e, held.ID, engine.Cancelled)
	if out := effSuccess(t, e, effStart(t, e, w, 7)); out != 7 {
		t.Errorf("got %d", out)
	}
}

// Any number of engines on one pool leave each other connections.
func TestRegressionEnginesOnOnePool(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, pgtest.Database(t), 4)
	type pair struct {
		e *engine.Engine
		w steps.Workflow[int, int]
	}
	var pairs []pair
	for i := range 8 {
		w := steps.Declare[int, int](fmt.Sprint("one-of-", i))
		e := effEngine(t, pool, engine.Config{Session: 3 * time.Second, Workflows: []steps.Definition{inARow(w,
			steps.NewTx("a", func(ctx context.Context, tx pgx.Tx, n int) (int, error) {
				_, err := tx.Exec(ctx, "SELECT pg_sleep(0.1)")
				return n, err
			}), steps.New("b", same))}})
		work(t, e)
		pairs = append(pairs, pair{e, w})
	}
	var runs []engine.Run[int]
	for _, p := range pairs {
		runs = append(runs, effStart(t, p.e, p.w, 1), effStart(t, p.e, p.w, 2))
	}
	for i, r := range runs {
		effSuccess(t, pairs[i/2].e, r)
	}
}

// A renewal that no answer comes to is asked for again on another connection
// before the lease is lost, and holds up no other.
func TestRegressionRenewalStalls(t *testing.T) {
	t.Parallel()
	pool, proxy := effProxy(t, pgtest.Database(t))
	w := steps.Declare[int, int]("steady")
	e := effEngine(t, pool, engine.Config{Session: time.Minute, Workflows: []steps.Definition{w.Of(steps.New("s", func(ctx context.Context, n int) (int, error) {
		for end := time.Now().Add(8 * time.Second); time.Now().Before(end); {
			select {
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			case <-time.After(50 * time.Millisecond): // its own work
			}
			if err := steps.Acknowledge(ctx); err != nil {
				return 0, err
			}
		}
		return n, nil
	}, steps.Lease(4*time.Second), steps.RetryUnknown{Attempts: 1}))}})
	var stalled atomic.Int64
	proxy.OnExecute(func(sql string) pgproxy.Action {
		if effStatement(sql, "Renew") && stalled.Add(1) == 1 {
			return pgproxy.Stall
		}
		return pgproxy.Pass
	})
	work(t, e)
	r := effStart(t, e, w, 7)
	if effSuccess(t, e, r); stalled.Load() < 2 {
		t.Errorf("%d renewals", stalled.Load())
	}
	if info := effGet(t, e, r.ID); len(info.History) != 1 {
		t.Errorf("the lease was lost: %+v", info.History)
	}
}

// A late-arrival window may be longer than the time in which questions are asked.
func TestRegressionLateWindow(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("window")
	var calls atomic.Int64
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("pay", func(_ context.Context, n int) (int, error) {
		if calls.Add(1) == 1 {
			return 0, errors.New("answer lost")
		}
		return n, nil
	}).LookUp(func(context.Context, int) (steps.Verdict[int], error) { return steps.NeverHappened[int](), nil }, 2*time.Second,
		steps.Retry{Attempts: 2, Within: 200 * time.Millisecond, Delay: 100 * time.Millisecond}))}})
	work(t, e)
	r := effStart(t, e, w, 7)
	effState(t, e, r.ID, engine.Succeeded)
}

// The target's memory of a key may be short: the body gets what there is of it.
func TestRegressionShortMemory(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("short")
	var late atomic.Int64
	ship := func(ctx context.Context, n int) (int, error) {
		if ctx.Err() != nil {
			late.Add(1)
		}
		return n, ctx.Err()
	}
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{
		inARow(w, steps.New("a", ship, steps.Idempotent(3*time.Second)), steps.New("b", ship, steps.Idempotent(3*time.Second)))}})
	work(t, e)
	r := effStart(t, e, w, 7)
	if effState(t, e, r.ID, engine.Succeeded, engine.Uncertain, engine.Failed); late.Load() > 0 {
		t.Errorf("the body was called %d times with a context that had ended", late.Load())
	}
}

// A Map that hangs behind a step does not hold up what the step has done.
func TestRegressionMapHangs(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	hung := make(chan struct{})
	hang := func(n int) int { <-hung; return n }
	for name, flow := range map[string]func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int]{
		"before an effect": func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
			a := steps.New("a", same, steps.Idempotent(steps.Forever)).Do(f, in)
			return steps.New("b", same, steps.Idempotent(steps.Forever)).Do(f, steps.Map(a, hang))
		},
		"before the result": func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
			return steps.Map(steps.New("a", same).Do(f, in), hang)
		},
	} {
		w := steps.Declare[int, int](strings.ReplaceAll(name, " ", "-"))
		e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Define(flow)}})
		work(t, e)
		r := effStart(t, e, w, 7)
		effUntil(t, name+": the step is recorded", func() bool { return len(effRows(effGet(t, e, r.ID), "completed")) == 1 })
		t.Cleanup(func() { effSuccess(t, e, r) })
	}
	close(hung)
}

// Rows that somebody holds do not hide others from recovery.
func TestRegressionRecoveryBehindLocks(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	ctx := context.Background()
	w, other := steps.Declare[int, int]("held"), steps.Declare[int, int]("other")
	e := effEngine(t, pool, engine.Config{Session: time.Second, Workflows: []steps.Definition{w.Of(steps.New("s", same)), other.Of(steps.New("s", same))}})
	if _, err := engine.StartMany(ctx, e, w, make([]int, 501)); err != nil {
		t.Fatal(err)
	}
	effExec(t, pool, `UPDATE pawl.job SET state = 'running', token = token + 1, attempt = 1, owner = gen_random_uuid(), granted_at = now(),
		expires_at = now() + interval '1 hour', deadline_at = now() + interval '1 hour'`) // a worker without a session
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, "SELECT FROM pawl.job ORDER BY id LIMIT 500 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	work(t, e)
	effUntil(t, "the one behind them is taken back and done", func() bool {
		return effScan[int](t, pool, "SELECT count(*) FROM pawl.run WHERE outcome = 'succeeded'") == 1
	})
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	effUntil(t, "all are done", func() bool {
		return effScan[int](t, pool, "SELECT count(*) FROM pawl.run WHERE outcome = 'succeeded'") == 501
	})
}

// What can't be read of one run is no reason to keep others waiting.
func TestRegressionWaitersApart(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	bad, lost, good := steps.Declare[int, int]("bad"), steps.Declare[int, int]("lost"), steps.Declare[int, int]("good")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{
		bad.Of(steps.New("s", func(context.Context, int) (int, error) { return 0, steps.Permanent("NO", errors.New("no")) })),
		lost.Of(steps.New("s", same)), good.Of(steps.New("s", same))}})
	stop := work(t, e)
	rs := []engine.Run[int]{effStart(t, e, bad, 1), effStart(t, e, lost, 1), effStart(t, e, good, 1)}
	for _, r := range rs {
		effState(t, e, r.ID, engine.Failed, engine.Succeeded)
	}
	stop()
	graph := effScan[[]byte](t, pool, "SELECT graph FROM pawl.definition WHERE workflow = 'bad'")
	effExec(t, pool, `UPDATE pawl.definition SET graph = '{"format": 999}' WHERE workflow = 'bad'`)
	history := effScan[string](t, pool, "SELECT run_id FROM pawl.history WHERE run_id = $1", rs[1].ID)
	effExec(t, pool, "UPDATE pawl.history SET token = token + 100 WHERE run_id = $1", history)
	ends := make(chan error, len(rs))
	for _, r := range rs {
		go func() { _, err := effResult(t, e, r); ends <- err }()
	}
	var text []string
	for range rs {
		if err := effSignal(t, "all are told", ends); err != nil {
			text = append(text, err.Error())
		}
	}
	if all := strings.Join(text, "\n"); len(text) != 2 || !strings.Contains(all, "NO") || !strings.Contains(all, "not there any more") {
		t.Errorf("told: %s", all)
	}
	effExec(t, pool, "UPDATE pawl.definition SET graph = $1 WHERE workflow = 'bad'", graph)
	effExec(t, pool, "UPDATE pawl.history SET token = token - 100 WHERE run_id = $1", history)
}

// No run is started by a definition whose routes are not there yet.
func TestRegressionHalfRegistered(t *testing.T) {
	t.Parallel()
	pool, proxy := effProxy(t, pgtest.Database(t))
	w := steps.Declare[int, int]("moved")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("s", same))}})
	proxy.OnExecute(func(sql string) pgproxy.Action {
		if effStatement(sql, "MakeRoutes") {
			return pgproxy.CutBefore
		}
		return pgproxy.Pass
	})
	if _, err := engine.New(context.Background(), pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("s", same, steps.Queue("new")))}}); err == nil {
		t.Fatal("it was to fail between definition and routes")
	}
	proxy.OnExecute(nil)
	work(t, e)
	effSuccess(t, e, effStart(t, e, w, 7))
}

// At the place of the result there is no step whose input could be corrected.
func TestRegressionInputOfResult(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("result")
	var bad atomic.Bool
	bad.Store(true)
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
		return steps.Map(steps.New("a", same).Do(f, in), func(n int) int {
			if bad.Load() {
				panic(steps.Permanent("NO", errors.New("no")))
			}
			return n
		})
	})}})
	work(t, e)
	r := effStart(t, e, w, 7)
	effHurried(t, pool, e, r.ID, engine.Failed)
	if err := e.Replay(context.Background(), r.ID, effPerson, engine.WithInput(8)); !errors.Is(err, engine.ErrState) {
		t.Errorf("a corrected input for the result: %v", err)
	}
	bad.Store(false)
	if err := e.Replay(context.Background(), r.ID, effPerson); err != nil {
		t.Fatal(err)
	}
	effSuccess(t, e, r)
}
