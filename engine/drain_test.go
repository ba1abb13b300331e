package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// drainer is a worker that a test stops, and is told when it has ended.
type drainer struct {
	e    *engine.Engine
	stop context.CancelFunc
	done chan error
}

func launchDrainer(t *testing.T, pool *pgxpool.Pool, c engine.Config) *drainer {
	d := &drainer{e: effEngine(t, pool, c), done: make(chan error, 1)}
	var ctx context.Context
	ctx, d.stop = context.WithCancel(context.Background())
	t.Cleanup(d.stop)
	go func() { d.done <- d.e.Work(ctx) }()
	return d
}

func (d *drainer) ended(t *testing.T) {
	t.Helper()
	if err := effSignal(t, "Work to return", d.done); err != nil {
		t.Errorf("Work: %v", err)
	}
}

// A worker that stops claims nothing more, waits for its steps, and leaves
// their successors to others. Nothing costs an attempt.
func TestDrainWaits(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	began, release := make(chan int, 10), make(chan struct{})
	w := steps.Declare[int, int]("two-steps")
	def := w.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
		a := steps.New("slow", func(ctx context.Context, n int) (int, error) {
			began <- n
			select {
			case <-release:
				return n + 1, nil
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		}).Do(f, in)
		return steps.New("next", func(_ context.Context, n int) (int, error) { return n + 1, nil }).Do(f, a)
	})
	c := engine.Config{Workflows: []steps.Definition{def}, Slots: 2, Drain: time.Minute}
	d := launchDrainer(t, pool, c)
	runs := []engine.Run[int]{effStart(t, d.e, w, 10), effStart(t, d.e, w, 20), effStart(t, d.e, w, 30)}
	effSignal(t, "a step to begin", began)
	effSignal(t, "another to begin", began)
	d.stop()
	effUntil(t, "the rest to be known as pending", func() bool { return effGet(t, d.e, runs[2].ID).Jobs[0].State == "pending" })
	late := effStart(t, d.e, w, 40)
	select {
	case err := <-d.done:
		t.Fatalf("Work returned while steps were under way: %v", err)
	case n := <-began:
		t.Fatalf("a draining worker began %d", n)
	case <-time.After(300 * time.Millisecond): // no signal says that nothing happens
	}
	close(release)
	d.ended(t)
	for _, r := range runs[:2] {
		info := effGet(t, d.e, r.ID)
		if len(info.History) != 1 || info.History[0].Event != "completed" || info.Jobs[0].Step != "next" || info.Jobs[0].State != "pending" || info.Jobs[0].Attempt != 0 {
			t.Errorf("after the drain: %v, %+v", effEvents(info), info.Jobs)
		}
	}
	for _, r := range []engine.Run[int]{runs[2], late} {
		if info := effGet(t, d.e, r.ID); len(info.History) != 0 || info.Jobs[0].Attempt != 0 {
			t.Errorf("a draining worker took %+v", info)
		}
	}
	other := launchDrainer(t, pool, c)
	for i, r := range append(runs, late) {
		if out := effSuccess(t, d.e, r); out != 10*(i+1)+2 {
			t.Errorf("run %d: %d", i, out)
		}
		for _, h := range effGet(t, d.e, r.ID).History {
			if h.Event == "handed_back" || h.Attempt != 1 {
				t.Errorf("%+v", h)
			}
		}
	}
	other.stop()
	other.ended(t)
}

// When its patience is at its end a drain hands back what it can, at once and
// without costing an attempt; an effect in flight is uncertain; a body that
// ignores its context keeps its lease until that lapses.
func TestDrainHandsBack(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	var second atomic.Bool // a second worker is there
	began, release := make(chan string, 10), make(chan struct{})
	var cause atomic.Value
	minds, ignores := steps.Declare[int, string]("minds-context"), steps.Declare[int, string]("ignores-context")
	byLookUp, byPerson := steps.Declare[int, string]("looked-up"), steps.Declare[int, string]("decided")
	body := func(name string, waits bool) func(context.Context, int) (string, error) {
		return func(ctx context.Context, _ int) (string, error) {
			if second.Load() {
				return "second worker", nil
			}
			began <- name
			if waits {
				<-release
				return "first worker", nil
			}
			<-ctx.Done()
			if name == "minds" {
				cause.Store(context.Cause(ctx))
			}
			return "", ctx.Err()
		}
	}
	c := engine.Config{Drain: 500 * time.Millisecond, Workflows: []steps.Definition{
		minds.Of(steps.New("minds", body("minds", false))),
		ignores.Of(steps.New("ignores", body("ignores", true), steps.Lease(5*time.Second))),
		byLookUp.Of(steps.New("charge", body("charge", false)).LookUp(func(context.Context, int) (steps.Verdict[string], error) {
			return steps.Happened("looked up"), nil
		}, time.Hour)),
		byPerson.Of(steps.New("charge", body("charge", false), steps.Manual())),
	}}
	d := launchDrainer(t, pool, c)
	a, b, l, p := effStart(t, d.e, minds, 1), effStart(t, d.e, ignores, 1), effStart(t, d.e, byLookUp, 1), effStart(t, d.e, byPerson, 1)
	for range 4 {
		effSignal(t, "all to begin", began)
	}
	second.Store(true)
	d.stop()
	d.ended(t)
	t.Cleanup(func() { close(release) })
	if err, _ := cause.Load().(error); !errors.Is(err, steps.ErrDrained) {
		t.Errorf("the context's cause is %v", err)
	}
	if info := effGet(t, d.e, a.ID); len(info.History) != 1 || info.History[0].Event != "handed_back" || info.Jobs[0].State != "pending" || info.Jobs[0].Attempt != 0 || info.DueAt.After(info.History[0].EndedAt) {
		t.Errorf("handed back: %v, %+v", effEvents(info), info.Jobs)
	}
	if info := effGet(t, d.e, b.ID); len(info.History) == 0 && (info.Jobs[0].State != "running" || info.Jobs[0].ExpiresAt.IsZero()) {
		t.Errorf("a body that may still run: %+v", info.Jobs)
	}
	if info := effGet(t, d.e, p.ID); info.State != engine.Uncertain || !info.DueAt.IsZero() {
		t.Errorf("a person is to decide: %+v", info)
	}
	if info := effGet(t, d.e, l.ID); info.State != engine.Uncertain || len(info.History) == 0 || info.History[0].Event != "uncertain" || !strings.Contains(info.History[0].Reason, "the worker stopped") {
		t.Errorf("to be looked up: %+v", info)
	}
	other := launchDrainer(t, pool, c)
	for _, r := range []engine.Run[string]{a, b} {
		if out := effSuccess(t, d.e, r); out != "second worker" {
			t.Errorf("got %q", out)
		}
	}
	if out := effSuccess(t, d.e, l); out != "looked up" {
		t.Errorf("got %q", out)
	}
	if info := effGet(t, d.e, a.ID); info.History[1].Attempt != 1 {
		t.Errorf("handing back cost an attempt: %+v", info.History)
	}
	info := effGet(t, d.e, b.ID)
	if h := info.History[0]; h.Event != "lapsed" || h.EndedAt.Sub(h.GrantedAt) < 5*time.Second || info.History[1].Attempt != 2 {
		t.Errorf("a body that ignored its context: %+v", info.History)
	}
	other.stop()
	other.ended(t)
}

// A long step stops at its next cursor, and the next attempt goes on from
// there. One whose effect has begun is not told to.
func TestDrainAtCursor(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	step, moved := make(chan struct{}), make(chan int, 100)
	var answers atomic.Value
	long, charging := steps.Declare[int, int]("rows"), steps.Declare[int, int]("charging-rows")
	c := engine.Config{Drain: time.Minute, Workflows: []steps.Definition{
		long.Of(steps.NewLong("rows", func(ctx context.Context, n int, cur *steps.Cursor[int]) (int, error) {
			for cur.At() < n {
				moved <- cur.At()
				<-step
				if err := cur.Commit(ctx, cur.At()+1); err != nil {
					answers.Store(err)
					return 0, err
				}
			}
			return cur.At(), nil
		})),
		charging.Of(steps.NewLong("rows", func(ctx context.Context, n int, cur *steps.Cursor[int]) (int, error) {
			for cur.At() < n {
				moved <- cur.At()
				<-step
				if err := cur.Commit(ctx, cur.At()+1); err != nil {
					return 0, err
				}
			}
			return cur.At(), nil
		}, steps.Manual())),
	}}
	t.Cleanup(func() { close(step) }) // no body is left behind by a failure
	at := func(n int) {               // what was written before has been answered
		t.Helper()
		if got := effSignal(t, "a position", moved); got != n {
			t.Fatalf("it stands at %d, not %d", got, n)
		}
	}
	goOn := func() {
		t.Helper()
		select {
		case step <- struct{}{}:
		case <-time.After(effPatience):
			t.Fatal("nobody goes on")
		}
	}
	draining := func(d *drainer) {
		t.Helper()
		effUntil(t, "the drain", func() bool { return hasProblem(d.e.Health(context.Background()), "draining") })
	}
	d := launchDrainer(t, pool, c)
	r := effStart(t, d.e, long, 5)
	at(0)
	goOn()
	at(1)
	goOn()
	at(2)
	d.stop()
	draining(d)
	goOn()
	d.ended(t)
	if err, _ := answers.Load().(error); !errors.Is(err, steps.ErrDrained) {
		t.Errorf("the cursor said %v", err)
	}
	info := effGet(t, d.e, r.ID)
	if len(info.History) != 1 || info.History[0].Event != "handed_back" || info.Jobs[0].Attempt != 0 {
		t.Errorf("%v, %+v", effEvents(info), info.Jobs)
	}
	d = launchDrainer(t, pool, c)
	at(3)
	goOn()
	at(4)
	goOn()
	if out := effSuccess(t, d.e, r); out != 5 {
		t.Errorf("got %d", out)
	}
	s := effStart(t, d.e, charging, 3)
	at(0)
	goOn()
	at(1)
	d.stop()
	draining(d)
	goOn()
	at(2)
	goOn()
	d.ended(t)
	if info := effGet(t, d.e, s.ID); info.State != engine.Succeeded || len(info.History) != 1 {
		t.Errorf("an effect that had begun: %s, %+v", info.State, info.History)
	}
}

// A worker that is stopped in the middle of a claim leaks no lease: what it was
// granted is there for others at once.
func TestCase26(t *testing.T) {
	t.Parallel()
	for _, how := range []struct {
		name   string
		action pgproxy.Action
	}{{"the answer comes late", pgproxy.Delay(time.Second)}, {"the answer is lost", pgproxy.CutAfter}} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Database(t)
			pool := effPool(t, url)
			slow, proxy := effProxy(t, url)
			w := steps.Declare[int, int]("claimed")
			c := engine.Config{Session: time.Minute, Workflows: []steps.Definition{w.Of(steps.New("step", func(_ context.Context, n int) (int, error) { return n + 1, nil }))}}
			claiming, started := make(chan struct{}, 10), make(chan struct{})
			var claimed atomic.Bool
			proxy.OnExecute(func(sql string) pgproxy.Action {
				if !effStatement(sql, "Claim") {
					return pgproxy.Pass
				}
				<-started // the first claim gets the jobs
				if claimed.Swap(true) {
					return pgproxy.Pass
				}
				claiming <- struct{}{}
				return how.action
			})
			d := launchDrainer(t, slow, c)
			effUntil(t, "the worker's session", func() bool { return effScan[int](t, pool, "SELECT count(*) FROM pawl.session") == 1 })
			starter := effEngine(t, pool, c)
			runs, err := engine.StartMany(context.Background(), starter, w, []int{1, 2, 3, 4, 5})
			close(started)
			if err != nil {
				t.Fatal(err)
			}
			effSignal(t, "a claim", claiming)
			d.stop()
			d.ended(t)
			if proxy.Fired(how.action) == 0 {
				t.Error("nothing happened to the claim")
			}
			if n := effScan[int](t, pool, "SELECT count(*) FROM pawl.job WHERE token > 0"); n != 5 {
				t.Errorf("%d jobs were claimed", n)
			}
			other := launchDrainer(t, pool, c)
			for i, r := range runs {
				if out := effSuccess(t, starter, r); out != i+2 {
					t.Errorf("got %d", out)
				}
				// Were a lease leaked it would last for a minute.
				if info := effGet(t, starter, r.ID); info.EndedAt.Sub(info.CreatedAt) > 50*time.Second {
					t.Errorf("it took %v: %v", info.EndedAt.Sub(info.CreatedAt), effEvents(info))
				}
			}
			if n := effScan[int](t, pool, "SELECT count(*) FROM pawl.history WHERE event = 'completed' AND attempt <> 1"); n != 0 {
				t.Errorf("%d claims that nobody took up cost an attempt", n)
			}
			other.stop()
			other.ended(t)
		})
	}
}
