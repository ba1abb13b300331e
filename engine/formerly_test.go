package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// A run that stands at a step which was renamed since is carried on by the new
// code, if that says what the name was: from what the step's old attempts left,
// under the idempotency key that the target knows. So is one that has not come
// there yet, and one that has it behind it and needs its output.
func TestFormerly(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("renamed")
	var mu sync.Mutex
	keys := map[int][]string{} // by run
	begin := func(ctx context.Context, n int) (int, error) { return n + 1, nil }
	pay := func(down bool) func(context.Context, int) (int, error) {
		return func(ctx context.Context, n int) (int, error) {
			mu.Lock()
			keys[n] = append(keys[n], steps.IdempotencyKey(ctx))
			mu.Unlock()
			if down && n < 200 {
				return 0, steps.RetryAfter(time.Hour, errors.New("the target is down"))
			}
			return 10 * n, nil
		}
	}
	end := func(down bool) func(context.Context, int) (int, error) {
		return func(_ context.Context, n int) (int, error) {
			if down {
				return 0, steps.RetryAfter(time.Hour, errors.New("not today"))
			}
			return n + 3, nil
		}
	}
	draw := func(first, second, third steps.Step[int, int]) steps.Definition {
		return w.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
			paid := second.Do(f, first.Do(f, in))
			last := third.Do(f, paid)
			return steps.Map2(paid, last, func(a, b int) int { return 1000*a + b })
		})
	}
	release := func(formerly ...steps.Option) *engine.Engine {
		return effEngine(t, pool, engine.Config{Workflows: []steps.Definition{draw(steps.New("start", begin),
			steps.New("charge", pay(false), append(formerly, steps.Idempotent(steps.Forever))...), steps.New("finish", end(false)))}})
	}
	old := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{draw(steps.New("start", begin),
		steps.New("pay", pay(true), steps.Idempotent(steps.Forever)), steps.New("finish", end(true)))}})
	worked, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- old.Work(worked) }()
	defer stop()
	at := effStart(t, old, w, 100)
	behind := effStart(t, old, w, 300)
	before := effStart(t, old, w, 500, engine.After(time.Hour))
	for _, r := range []struct{ id, step string }{{at.ID, "pay"}, {behind.ID, "finish"}} {
		effUntil(t, "the run to wait at "+r.step, func() bool {
			info := effGet(t, old, r.id)
			return info.State == engine.Scheduled && info.Step == r.step
		})
	}
	stop()
	if err := effSignal(t, "the old release to stop", stopped); err != nil {
		t.Fatal(err)
	}
	key := effGet(t, old, at.ID).Jobs[0].IdempotencyKey

	// Without the option nobody knows the step.
	hurryAll(t, pool)
	work(t, release())
	effUntil(t, "the run to be stranded", func() bool {
		info := effGet(t, old, at.ID)
		return len(info.Jobs) == 1 && info.Jobs[0].Stranded
	})
	e := release(steps.Formerly("pay"), steps.Formerly("settle"))
	work(t, e)
	for _, r := range []struct {
		run engine.Run[int]
		in  int
	}{{at, 100}, {behind, 300}, {before, 500}} {
		n := r.in + 1
		run, err := engine.Handle(ctx, e, w, r.run.ID)
		if err != nil {
			t.Fatal(err)
		}
		if out := effSuccess(t, e, run); out != 1000*10*n+10*n+3 {
			t.Errorf("run of %d: got %d", r.in, out)
		}
		mu.Lock()
		if ks := keys[n]; len(ks) == 0 || ks[0] == "" || len(slices.Compact(slices.Clone(ks))) != 1 {
			t.Errorf("run of %d: the target saw the keys %q", r.in, ks)
		}
		mu.Unlock()
		for _, h := range effGet(t, e, r.run.ID).History {
			if h.Step == "charge" {
				t.Errorf("run of %d: its own graph has no step of that name: %+v", r.in, h)
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if ks := keys[101]; len(ks) != 2 || ks[1] != key {
		t.Errorf("the run that stood there had the key %s stored; the target saw %q", key, ks)
	}
}
