package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// cancels asks for a run's end and waits for what came of it.
func cancels[O any](t *testing.T, e *engine.Engine, r engine.Run[O], want engine.State) engine.RunInfo {
	t.Helper()
	if err := e.Cancel(context.Background(), r.ID, effPerson); err != nil {
		t.Fatal(err)
	}
	_, err := effResult(t, e, r)
	if (want == engine.Cancelled) != errors.Is(err, engine.ErrCancelled) || (want == engine.Succeeded) != (err == nil) {
		t.Errorf("Wait says %v, of a run that is to be %s", err, want)
	}
	info := effGet(t, e, r.ID)
	if info.State != want || info.EndedAt.IsZero() || len(info.Jobs) != 0 || info.CancelledBy != effPerson.Actor || info.Reason != effPerson.Reason {
		t.Errorf("%+v", info)
	}
	if err := e.Cancel(context.Background(), r.ID, effPerson); !errors.Is(err, engine.ErrState) {
		t.Errorf("a run that has ended was cancelled: %v", err)
	}
	return info
}

// What waits is ended by Cancel itself: no worker is needed.
func TestCancelWithoutWorker(t *testing.T) {
	t.Parallel()
	w := steps.Declare[int, int]("waiting-for-a-worker")
	e := effEngine(t, pgtest.Pool(t), engine.Config{Workflows: []steps.Definition{w.Of(steps.New("step", func(_ context.Context, n int) (int, error) { return n, nil }))}})
	for _, r := range []engine.Run[int]{effStart(t, e, w, 1), effStart(t, e, w, 2, engine.After(100*24*time.Hour)), effStart(t, e, w, 3, engine.At(time.Now().AddDate(1, 0, 0)))} {
		info := cancels(t, e, r, engine.Cancelled)
		if len(info.History) != 1 || info.History[0].Event != "cancelled" || info.History[0].To != "gone" {
			t.Errorf("%+v", info.History)
		}
	}
}

// A running step is told, with the cause; what it returns then does not matter.
// One that returns well after all was the last: the run has succeeded.
func TestCancelRunning(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	began := make(chan struct{}, 10)
	var cause, effectCause atomic.Value
	stops, succeeds, retries, charges := steps.Declare[int, int]("stops"), steps.Declare[int, int]("succeeds"), steps.Declare[int, int]("retries"), steps.Declare[int, int]("charges")
	release := make(chan struct{})
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{
		stops.Of(steps.New("step", func(ctx context.Context, _ int) (int, error) {
			began <- struct{}{}
			<-ctx.Done()
			cause.Store(context.Cause(ctx))
			return 0, errors.New("interrupted")
		})),
		succeeds.Of(steps.New("step", func(ctx context.Context, _ int) (int, error) {
			began <- struct{}{}
			<-ctx.Done()
			return 7, nil
		})),
		retries.Of(steps.New("step", func(context.Context, int) (int, error) { return 0, steps.RetryAfter(time.Hour, errPlain) })),
		charges.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
			paid := steps.New("charge", func(ctx context.Context, n int) (int, error) {
				began <- struct{}{}
				select { // an effect that has begun is waited for
				case <-release:
				case <-ctx.Done():
					effectCause.Store(context.Cause(ctx))
				}
				return n, nil
			}, steps.Manual()).Do(f, in)
			return steps.New("after", func(_ context.Context, n int) (int, error) { return n, nil }).Do(f, paid)
		}),
	}})
	work(t, e)
	a, b, c, d := effStart(t, e, stops, 1), effStart(t, e, succeeds, 1), effStart(t, e, retries, 1), effStart(t, e, charges, 1)
	for range 3 {
		effSignal(t, "a step to begin", began)
	}
	info := cancels(t, e, a, engine.Cancelled)
	if err, _ := cause.Load().(error); !errors.Is(err, steps.ErrCancelled) {
		t.Errorf("the context's cause was %v", err)
	}
	if len(info.History) != 1 || info.History[0].Event != "cancelled" {
		t.Errorf("%+v", info.History)
	}
	cancels(t, e, b, engine.Succeeded)
	effState(t, e, c.ID, engine.Scheduled)
	cancels(t, e, c, engine.Cancelled)

	ctx := context.Background()
	for range 2 { // twice is no error
		if err := e.Cancel(ctx, d.ID, effPerson); err != nil {
			t.Fatal(err)
		}
	}
	if info := effGet(t, e, d.ID); info.State != engine.Cancelling {
		t.Errorf("it is %s while its effect is under way", info.State)
	}
	close(release)
	if _, err := effResult(t, e, d); !errors.Is(err, engine.ErrCancelled) {
		t.Error(err)
	}
	info = effGet(t, e, d.ID)
	if len(info.History) != 1 || info.History[0].Event != "completed" || string(info.History[0].Output) != "1" || effectCause.Load() != nil {
		t.Errorf("an effect under way was interrupted (%v): %+v", effectCause.Load(), info.History)
	}
}

// A dead run has ended; an uncertain one is settled first, and no step follows.
func TestCancelDeadAndUncertain(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	ctx := context.Background()
	var known atomic.Bool
	var later atomic.Int64
	dies, byLookUp, byPerson := steps.Declare[int, int]("dies"), steps.Declare[int, int]("looked-up"), steps.Declare[int, int]("decided")
	fails := func(context.Context, int) (int, error) { return 0, errPlain }
	then := func(s steps.Step[int, int]) func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
		return func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
			return steps.New("later", func(_ context.Context, n int) (int, error) { later.Add(1); return n, nil }).Do(f, s.Do(f, in))
		}
	}
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{
		dies.Of(steps.New("step", fails, steps.RetryUnknown{Attempts: 1})),
		byLookUp.Define(then(steps.New("pay", fails).LookUp(func(context.Context, int) (steps.Verdict[int], error) {
			if !known.Load() {
				return steps.StillUnknown[int](50 * time.Millisecond), nil
			}
			return steps.Happened(5), nil
		}, time.Hour, effQuestions(100_000)))),
		byPerson.Define(then(steps.New("pay", fails, steps.Manual()))),
	}})
	work(t, e)
	dead := effStart(t, e, dies, 1)
	effState(t, e, dead.ID, engine.Failed)
	if err := e.Cancel(ctx, dead.ID, effPerson); !errors.Is(err, engine.ErrState) {
		t.Errorf("cancelling a failed run: %v", err)
	}
	l, p, q := effStart(t, e, byLookUp, 1), effStart(t, e, byPerson, 1), effStart(t, e, byPerson, 1)
	ids := []string{l.ID, p.ID, q.ID}
	for _, id := range ids {
		effState(t, e, id, engine.Uncertain)
		if err := e.Cancel(ctx, id, effPerson); err != nil {
			t.Fatal(err)
		}
	}
	effUntil(t, "some questions after the cancellation", func() bool { return len(effRows(effGet(t, e, l.ID), "unknown")) > 3 })
	for _, id := range ids {
		if info := effGet(t, e, id); info.State != engine.Cancelling || len(info.Jobs) != 1 {
			t.Errorf("an uncertain effect was left behind: %+v", info)
		}
	}
	known.Store(true)
	for id, r := range map[string]engine.Resolution{p.ID: engine.ItHappened(6, "seen"), q.ID: engine.ItNeverHappened("not seen")} {
		if err := e.Resolve(ctx, id, effPerson, r); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range []engine.Run[int]{l, p, q} {
		if _, err := effResult(t, e, r); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("run %d: %v", i, err)
		}
	}
	if h := effRows(effGet(t, e, l.ID), "settled"); len(h) != 1 || string(h[0].Output) != "5" {
		t.Errorf("what the look-up found is not recorded: %+v", h)
	}
	if later.Load() != 0 {
		t.Errorf("%d steps ran after a cancellation", later.Load())
	}
}

// Acts in a state that they do not fit.
func TestWrongState(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := steps.Declare[int, int]("any-state")
	e := effEngine(t, pgtest.Pool(t), engine.Config{Workflows: []steps.Definition{w.Of(steps.New("step", func(_ context.Context, n int) (int, error) {
		if n == 0 {
			return 0, steps.Permanent("ZERO", nil)
		}
		return n, nil
	}))}})
	pending := effStart(t, e, w, 1, engine.After(time.Hour))
	stop := work(t, e)
	done, dead := effStart(t, e, w, 2), effStart(t, e, w, 0)
	effSuccess(t, e, done)
	effState(t, e, dead.ID, engine.Failed)
	stop()
	cancelled := effStart(t, e, w, 3)
	if err := e.Cancel(ctx, cancelled.ID, effPerson); err != nil {
		t.Fatal(err)
	}
	for what, id := range map[string]string{"scheduled": pending.ID, "succeeded": done.ID, "cancelled": cancelled.ID} {
		if err := e.Replay(ctx, id, effPerson); !errors.Is(err, engine.ErrState) {
			t.Errorf("replay of a %s run: %v", what, err)
		}
		if err := e.Resolve(ctx, id, effPerson, engine.ItNeverHappened("so it is")); !errors.Is(err, engine.ErrState) {
			t.Errorf("resolving a %s run: %v", what, err)
		}
	}
	if err := e.Resolve(ctx, dead.ID, effPerson, engine.ItHappened(1, "so it is")); !errors.Is(err, engine.ErrState) {
		t.Errorf("resolving a dead run: %v", err)
	}
	if err := e.Replay(ctx, dead.ID, effPerson); err != nil {
		t.Fatal(err)
	}
	if err := e.Replay(ctx, dead.ID, effPerson); !errors.Is(err, engine.ErrState) {
		t.Errorf("replaying twice: %v", err)
	}
	cancels(t, e, dead, engine.Cancelled) // it lives again
	for _, by := range []engine.By{{}, {Actor: "ada"}, {Reason: "why"}, {Actor: "\x00", Reason: "why"}, {Actor: "ada", Reason: "\xff"}, {Actor: " ", Reason: "why"}} {
		if e.Cancel(ctx, pending.ID, by) == nil || e.Replay(ctx, pending.ID, by) == nil || e.Resolve(ctx, pending.ID, by, engine.ItNeverHappened("x")) == nil ||
			!refusedBeforeLooking(e.ReleaseKey(ctx, w.Name(), "k", by)) {
			t.Errorf("%+v may act", by)
		}
	}
	if err := e.Resolve(ctx, pending.ID, effPerson, engine.ItNeverHappened(" ")); err == nil || errors.Is(err, engine.ErrState) {
		t.Errorf("a word without evidence: %v", err)
	}
	if info := effGet(t, e, pending.ID); info.State != engine.Scheduled || len(info.History) != 0 {
		t.Errorf("a refused act left a trace: %+v", info)
	}
}

// refusedBeforeLooking: there is no such key, but that is not why.
func refusedBeforeLooking(err error) bool { return err != nil && !errors.Is(err, engine.ErrNotFound) }
