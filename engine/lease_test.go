package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

const (
	leaseShort = time.Second
	leaseMany  = 5 * leaseShort // many times over
)

// A step that makes progress outlives its lease many times over, in one
// attempt: by its cursor, by its cursor with a transaction, by acknowledgements.
func TestLeaseOutlived(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	effExec(t, pool, "CREATE TABLE public.imported (n int)")
	opts := []steps.Option{steps.Lease(leaseShort), steps.MaxRuntime(time.Hour), steps.Heartbeat(leaseShort / 4)}
	// Progress comes often against the lease, so that a loaded machine does not matter.
	onward := func(ctx context.Context, step func(i int) error) (int, error) {
		began, i := time.Now(), 0
		for ; time.Since(began) < leaseMany; i++ {
			if err := step(i + 1); err != nil {
				return 0, err
			}
			select {
			case <-time.After(leaseShort / 10):
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		}
		return i, nil
	}
	byCursor, byTx, byWord := steps.Declare[int, int]("by-cursor"), steps.Declare[int, int]("by-tx"), steps.Declare[int, int]("by-word")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{
		byCursor.Of(steps.NewLong("long", func(ctx context.Context, _ int, cur *steps.Cursor[int]) (int, error) {
			return onward(ctx, func(i int) error { return cur.Commit(ctx, i) })
		}, opts...)),
		byTx.Of(steps.NewLong("long", func(ctx context.Context, _ int, cur *steps.Cursor[int]) (int, error) {
			return onward(ctx, func(i int) error {
				return cur.CommitTx(ctx, i, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "INSERT INTO public.imported VALUES ($1)", i)
					return err
				})
			})
		}, opts...)),
		byWord.Of(steps.New("long", func(ctx context.Context, _ int) (int, error) {
			return onward(ctx, func(int) error { return steps.Acknowledge(ctx) })
		}, opts...)),
	}})
	work(t, e)
	runs := []engine.Run[int]{effStart(t, e, byCursor, 1), effStart(t, e, byTx, 1), effStart(t, e, byWord, 1)}
	for _, r := range runs {
		out := effSuccess(t, e, r)
		info := effGet(t, e, r.ID)
		if len(info.History) != 1 || info.History[0].Attempt != 1 || out < 2 {
			t.Errorf("%s: %d commits, %v", info.Workflow, out, effEvents(info))
		}
		if d := info.History[0].EndedAt.Sub(info.History[0].GrantedAt); d < leaseMany {
			t.Errorf("%s ran for %v only", info.Workflow, d)
		}
		if info.Workflow == "by-tx" {
			if n := effScan[int](t, pool, "SELECT count(*) FROM public.imported"); n != out {
				t.Errorf("%d rows of %d", n, out)
			}
		}
	}
}

// stalls notes for how long the machine kept a goroutine from running: what a
// lease's margin can't help against.
type stalls struct {
	worst atomic.Int64
	stop  chan struct{}
	done  chan struct{}
}

func watchStalls() *stalls {
	s := &stalls{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for {
			began := time.Now()
			select {
			case <-s.stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			s.worst.Store(max(s.worst.Load(), int64(time.Since(began)-5*time.Millisecond)))
		}
	}()
	return s
}

func (s *stalls) end() time.Duration {
	close(s.stop)
	<-s.done
	return time.Duration(s.worst.Load())
}

// A step without progress loses its lease. Its context ends, with the cause,
// before the database can give the job away; what it returns does not count.
func TestLeaseLost(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, string]("silent")
	const lease = 3 * time.Second // whose margin is a tenth
	type end struct {
		at, expiry time.Time
		cause      error
	}
	var mu sync.Mutex
	var ends []end
	var id atomic.Value
	known := make(chan struct{})
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("silent", func(ctx context.Context, _ int) (string, error) {
		<-known
		var expiry time.Time
		if err := pool.QueryRow(ctx, "SELECT expires_at FROM pawl.job WHERE run_id = $1", id.Load()).Scan(&expiry); err != nil {
			return "", err
		}
		mu.Lock()
		n := len(ends)
		mu.Unlock()
		if n == 3 {
			return "done at last", nil
		}
		<-ctx.Done()
		at := time.Now() // client and server share a clock here
		mu.Lock()
		defer mu.Unlock()
		ends = append(ends, end{at, expiry, context.Cause(ctx)})
		return "too late", nil
	}, steps.Lease(lease)))}})
	watch := watchStalls()
	work(t, e)
	r := effStart(t, e, w, 1)
	id.Store(r.ID)
	close(known)
	out := effSuccess(t, e, r)
	worst := watch.end()
	if out != "done at last" {
		t.Errorf("got %q", out)
	}
	for i, end := range ends {
		if !errors.Is(end.cause, steps.ErrLeaseLost) {
			t.Errorf("attempt %d ended because of %v", i+1, end.cause)
		}
		if left := end.expiry.Sub(end.at); left <= 0 && worst < lease/20 {
			t.Errorf("attempt %d was told %v after its lease could be given away (the machine stalled for %v)", i+1, -left, worst)
		}
	}
	info := effGet(t, e, r.ID)
	lapsed := effRows(info, "lapsed")
	if len(lapsed) != 3 || len(info.History) != 4 || len(info.Evidence) != 0 {
		t.Fatalf("%v, evidence %v", effEvents(info), info.Evidence)
	}
	for _, h := range lapsed {
		if h.Code != "LEASE_EXPIRED" || h.Writer != "recovery" || h.EndedAt.Sub(h.GrantedAt) < lease {
			t.Errorf("recorded as %+v", h)
		}
	}
	if info.History[3].Attempt != 4 {
		t.Errorf("done at attempt %d", info.History[3].Attempt)
	}
}

// The first lapse is tried again without delay: a worker that died says nothing
// of the step. Those after it back off, up to a limit that doubles to a minute;
// a cursor that moves makes the next lapse a first one.
func TestLeaseLapseBackoff(t *testing.T) {
	t.Parallel()
	b := newFenceBed(t)
	noteDelays(t, b.pool)
	owner, ctx := b.owner(), context.Background()
	j := b.one(owner)
	lapse := func(jitter float64) time.Duration {
		t.Helper()
		b.exec("UPDATE pawl.job SET expires_at = granted_at")
		if rows, err := taken(b.q.Recover(ctx, db.RecoverParams{Most: 10, Budget: 100, BaseMs: 1000, Jitter: jitter, Request: rand.Int64()})); err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		ds := delays(t, b.pool, j.RunID.String(), "lapsed")
		b.exec("UPDATE pawl.job SET due_at = pawl.now()")
		j = b.claim(owner)[0]
		return ds[len(ds)-1]
	}
	for i, want := range []time.Duration{0, 2, 4, 8, 16, 32, 60, 60} {
		if d := lapse(1); d != want*time.Second {
			t.Errorf("after lapse %d it is due in %v, with the whole jitter", i+1, d)
		}
	}
	if d := lapse(0.25); d != 15*time.Second {
		t.Errorf("due in %v, with a quarter of the jitter", d)
	}
	if rows, err := b.q.SaveCursor(ctx, db.SaveCursorParams{ID: j.ID, LeaseMs: 1000, Owner: owner, Token: j.Token, Encoding: "json", Value: []byte("1")}); err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	if d := lapse(1); d != 0 {
		t.Errorf("due in %v, after the first lapse since the cursor moved", d)
	}
	if d := lapse(1); d != 2*time.Second {
		t.Errorf("due in %v, after the second", d)
	}
}

// Lapses without a move of the cursor have a budget; a cursor that moved in
// between starts it anew.
func TestLeaseLapseBudget(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	noteDelays(t, pool)
	stuck, slow := steps.Declare[int, int]("stuck"), steps.Declare[int, int]("slow")
	e := effEngine(t, pool, engine.Config{Session: time.Second, Workflows: []steps.Definition{
		stuck.Of(steps.New("stuck", func(ctx context.Context, _ int) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}, steps.Lease(300*time.Millisecond))),
		slow.Of(steps.NewLong("slow", func(ctx context.Context, _ int, cur *steps.Cursor[int]) (int, error) {
			if at := cur.At(); at < 7 {
				if err := cur.Commit(ctx, at+1); err != nil {
					return 0, err
				}
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return cur.At(), nil
		}, steps.Lease(600*time.Millisecond))),
	}})
	work(t, e)
	a, b := effStart(t, e, stuck, 1), effStart(t, e, slow, 1)
	info := effHurried(t, pool, e, a.ID, engine.Failed)
	if info.Code != "LEASE_EXPIRED" || len(info.History) != 5 || len(effRows(info, "lapsed")) != 4 {
		t.Errorf("%s: %v", info.Code, effEvents(info))
	}
	ds := delays(t, pool, a.ID, "lapsed")
	if ds[0] != 0 || ds[1] > 2*time.Second || ds[2] > 4*time.Second || ds[3] > 8*time.Second || slices.Min(ds) < 0 || slices.Max(ds) == 0 {
		t.Errorf("tried again after %v", ds)
	}
	if info = effHurried(t, pool, e, b.ID, engine.Succeeded, engine.Failed); info.State != engine.Succeeded || len(effRows(info, "lapsed")) < 7 {
		t.Errorf("%s: %v", info.State, effEvents(info))
	}
	if ds := delays(t, pool, b.ID, "lapsed"); slices.Max(ds) != 0 { // each is the first since the cursor moved
		t.Errorf("with a cursor that moves, tried again after %v", ds)
	}
}

// Nothing outlives its max runtime, whatever progress it makes: a body that
// minds its context has a time-out, another loses its lease.
func TestLeaseMaxRuntime(t *testing.T) {
	t.Parallel()
	const most = 2 * time.Second
	pool := effPool(t, pgtest.Database(t))
	minds, ignores := steps.Declare[int, int]("minds"), steps.Declare[int, int]("ignores")
	var attempts atomic.Int64
	stop := make(chan struct{})
	var bodies sync.WaitGroup
	opts := []steps.Option{steps.Lease(leaseShort), steps.MaxRuntime(most), effQuick}
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{
		minds.Of(steps.NewLong("long", func(ctx context.Context, _ int, cur *steps.Cursor[int]) (int, error) {
			if cur.At() > 0 && attempts.Add(1) > 1 {
				return cur.At(), nil
			}
			for {
				if err := cur.Commit(ctx, cur.At()+1); err != nil {
					return 0, err
				}
				time.Sleep(20 * time.Millisecond) // the work of one round
			}
		}, opts...)),
		ignores.Of(steps.New("long", func(ctx context.Context, _ int) (int, error) {
			bodies.Add(1)
			defer bodies.Done()
			for {
				_ = steps.Acknowledge(ctx)
				select {
				case <-stop:
					return 1, nil
				case <-time.After(20 * time.Millisecond):
				}
			}
		}, opts...)),
	}})
	work(t, e)
	a, b := effStart(t, e, minds, 1), effStart(t, e, ignores, 1)
	if out := effSuccess(t, e, a); out < 2 {
		t.Errorf("got %d", out)
	}
	effUntil(t, "a lapse", func() bool { return len(effRows(effGet(t, e, b.ID), "lapsed")) > 0 })
	close(stop)
	effSuccess(t, e, b)
	bodies.Wait()
	for id, code := range map[string]string{a.ID: "TIMEOUT", b.ID: "LEASE_EXPIRED"} {
		info := effGet(t, e, id)
		h := info.History[0]
		d := h.EndedAt.Sub(h.GrantedAt)
		if h.Code != code && !(code == "TIMEOUT" && h.Code == "LEASE_EXPIRED") { // a stalled machine is late for the first
			t.Errorf("%s: ended by %s after %v", info.Workflow, h.Code, d)
		}
		if d < most/2 {
			t.Errorf("%s: ended after %v, of %v", info.Workflow, d, most)
		}
	}
	if n := effScan[int](t, pool, "SELECT count(*) FROM pawl.history WHERE event = 'completed' AND ended_at - granted_at > interval '2 seconds'"); n != 0 {
		t.Errorf("%d attempts completed beyond their max runtime", n)
	}
}

// A lease that the database's clock ended early, as a clock that jumps forward
// does, may be granted to the same worker again: the attempt before is told.
func TestLeaseGrantedAgain(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, string]("again")
	began, told := make(chan struct{}, 2), make(chan error, 2)
	var attempts atomic.Int64
	e := effEngine(t, pool, engine.Config{Session: time.Second, Workflows: []steps.Definition{w.Of(steps.New("step", func(ctx context.Context, _ int) (string, error) {
		if attempts.Add(1) == 1 {
			began <- struct{}{}
			<-ctx.Done()
			told <- context.Cause(ctx)
			return "first", nil
		}
		return "second", nil
	}, steps.Lease(time.Hour)))}})
	work(t, e)
	r := effStart(t, e, w, 1)
	effSignal(t, "the step to begin", began)
	effExec(t, pool, "UPDATE pawl.job SET expires_at = pawl.now() - interval '1 second'")
	if out := effSuccess(t, e, r); out != "second" {
		t.Errorf("got %q", out)
	}
	if err := effSignal(t, "the first attempt to be told", told); !errors.Is(err, steps.ErrLeaseLost) {
		t.Error(err)
	}
}
