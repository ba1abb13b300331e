package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

var chain = steps.Declare[int, int]("chain")

func chainOf(n int, calls *atomic.Int64) steps.Definition {
	return chain.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
		for i := range n {
			in = steps.New(fmt.Sprintf("add-%d", i), func(_ context.Context, n int) (int, error) { calls.Add(1); return n + 1, nil }).Do(f, in)
		}
		return in
	})
}

// work runs Work until the test ends, and waits for its end.
func work(t testing.TB, e *engine.Engine) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Work(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Work: %v", err)
			}
		case <-time.After(60 * time.Second):
			t.Error("Work did not end")
		}
	}
	t.Cleanup(stop)
	return stop
}

func TestSequence(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	var calls atomic.Int64
	e, err := engine.New(ctx, pool, engine.Config{Workflows: []steps.Definition{chainOf(20, &calls)}})
	if err != nil {
		t.Fatal(err)
	}
	work(t, e)
	var runs []engine.Run[int]
	for i := range 50 {
		r, err := engine.Start(ctx, e, chain, i, engine.Key(fmt.Sprint("k", i)))
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
	}
	for i, r := range runs {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		out, err := r.Wait(ctx)
		cancel()
		if err != nil || out != i+20 {
			info, e2 := e.Get(context.Background(), r.ID)
			t.Fatalf("run %d: got %d, %v\n%+v %v", i, out, err, info, e2)
		}
	}
	if calls.Load() != 1000 {
		t.Errorf("%d calls", calls.Load())
	}
	info, err := e.Get(ctx, runs[0].ID)
	if err != nil || info.State != engine.Succeeded || len(info.History) != 20 {
		t.Errorf("got %+v, %v", info, err)
	}
}
