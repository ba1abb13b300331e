package engine_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

var awaited = steps.Declare[int, int]("awaited")

// awaitedBehind works on awaited runs, which end when gate does.
func awaitedBehind(t *testing.T, dsn string, gate <-chan struct{}) (stop func()) {
	pool := envPool(t, dsn)
	e := envEngine(t, pool, engine.Config{Slots: 1000, Workflows: []steps.Definition{
		awaited.Of(steps.New("step", func(ctx context.Context, n int) (int, error) {
			select {
			case <-gate:
				return 2 * n, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}))}})
	end := work(t, e)
	return func() { end(); pool.Close() }
}

// TestWaiters: ten thousand callers wait for results in a process with four
// connections that knows no more than the contract. Not parallel, since it
// counts goroutines.
func TestWaiters(t *testing.T) {
	const callers, most = 10_000, 4
	ctx := context.Background()
	dsn := pgtest.Database(t)
	watch := envPool(t, dsn)
	connections := func() int {
		return effScan[int](t, watch, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waiters'")
	}
	connections() // the pool's own goroutines are there now
	leaks := goleak.IgnoreCurrent()
	gate := make(chan struct{})
	stop := awaitedBehind(t, dsn, gate)

	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = most
	config.ConnConfig.RuntimeParams["application_name"] = "waiters"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	e := envEngine(t, pool, engine.Config{})
	inputs := make([]int, callers)
	for i := range inputs {
		inputs[i] = i
	}
	runs, err := engine.StartMany(ctx, e, awaited, inputs)
	if err != nil {
		t.Fatal(err)
	}

	var waiting, cancelled sync.WaitGroup
	var right, begun atomic.Int64
	short, giveUp := context.WithCancel(ctx)
	for i, r := range runs {
		waiting.Go(func() {
			begun.Add(1)
			if out, err := r.Wait(ctx); err != nil || out != 2*i {
				t.Errorf("run %d: %d %v", i, out, err)
				return
			}
			right.Add(1)
		})
		if i%10 == 0 { // beside them some who will not wait to the end
			cancelled.Go(func() {
				begun.Add(1)
				if _, err := r.Wait(short); !errors.Is(err, context.Canceled) {
					t.Errorf("run %d: given up with %v", i, err)
				}
			})
		}
	}
	effUntil(t, "everybody waits", func() bool { return begun.Load() == callers+callers/10 })
	if n := connections(); n > most {
		t.Errorf("%d connections", n)
	}
	giveUp()
	cancelled.Wait()
	if n := right.Load(); n != 0 {
		t.Errorf("%d results before the end", n)
	}
	close(gate)
	ended := make(chan struct{})
	go func() { waiting.Wait(); close(ended) }()
	peak := 0
	for done := false; !done; {
		select {
		case <-ended:
			done = true
		case <-time.After(50 * time.Millisecond):
		}
		peak = max(peak, connections())
	}
	if peak > most || peak == 0 {
		t.Errorf("up to %d connections", peak)
	}
	if right.Load() != callers {
		t.Errorf("%d of %d callers have the right result", right.Load(), callers)
	}
	// Who comes later is told at once: one question, no wake-up.
	for _, r := range runs[:20] {
		effSuccess(t, e, r)
	}
	stop()
	pool.Close()
	if err := goleak.Find(leaks); err != nil {
		t.Error(err)
	}
}

// TestWaitersGiveUp: those who stop waiting leave nothing behind, and those
// whose pool is closed are told so. Nobody works, so the run does not end. Not
// parallel, since it counts goroutines.
func TestWaitersGiveUp(t *testing.T) {
	ctx := context.Background()
	pool := envPool(t, pgtest.Database(t))
	e := envEngine(t, pool, engine.Config{Workflows: []steps.Definition{awaited.Of(steps.New("step", plus(1)))}})
	run := effStart(t, e, awaited, 1)
	effUntil(t, "the wake-up of the start is sent", func() bool { return pool.Stat().AcquiredConns() == 0 })
	leaks := goleak.IgnoreCurrent() // the pool's own

	var all sync.WaitGroup
	var began atomic.Int64
	short, giveUp := context.WithCancel(ctx)
	for range 1000 {
		all.Go(func() {
			began.Add(1)
			if _, err := run.Wait(short); !errors.Is(err, context.Canceled) {
				t.Errorf("given up with %v", err)
			}
		})
	}
	effUntil(t, "they wait", func() bool { return began.Load() == 1000 && pool.Stat().AcquiredConns() > 0 })
	giveUp()
	all.Wait()
	// With nobody left the goroutine that asks ends, and the listener with it.
	if err := goleak.Find(leaks); err != nil {
		t.Error(err)
	}
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections are kept", n)
	}
	expired, cancel := context.WithDeadline(ctx, time.Unix(0, 0))
	defer cancel()
	if _, err := run.Wait(expired); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a deadline in the past: %v", err)
	}

	for range 1000 {
		all.Go(func() {
			began.Add(1)
			ctx, cancel := context.WithTimeout(ctx, envPatience)
			defer cancel()
			if out, err := run.Wait(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a closed pool gives %d, %v", out, err)
			}
		})
	}
	effUntil(t, "they wait", func() bool { return began.Load() == 2000 && pool.Stat().AcquiredConns() > 0 })
	pool.Close()
	all.Wait()
	if _, err := run.Wait(ctx); err == nil {
		t.Error("a result from a closed pool")
	}
	if err := goleak.Find(leaks); err != nil {
		t.Error(err)
	}
}
