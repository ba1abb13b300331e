package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

var lengthy = steps.Declare[int, int]("lengthy")

// TestCase21 runs a step for several times its lease, in front of recovery of
// two workers. As long as it makes progress, by a cursor or by
// acknowledgements from downstream, its age is no reason to run it again.
func TestCase21(t *testing.T) {
	t.Parallel()
	const lease, runtime = 3 * time.Second, 10 * time.Second
	var calls atomic.Int64
	progress := func(ctx context.Context, again func(i int) error) (int, error) {
		calls.Add(1)
		begun := time.Now()
		i := 0
		for ; time.Since(begun) < runtime; i++ {
			if err := again(i); err != nil {
				return 0, err
			}
			select {
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			case <-time.After(20 * time.Millisecond): // the pace of the work
			}
		}
		return i, nil
	}
	for name, step := range map[string]steps.Step[int, int]{
		"cursor": steps.NewLong("step", func(ctx context.Context, _ int, cur *steps.Cursor[int]) (int, error) {
			return progress(ctx, func(i int) error { return cur.Commit(ctx, i) })
		}, steps.Lease(lease)),
		"acknowledge": steps.New("step", func(ctx context.Context, _ int) (int, error) {
			return progress(ctx, func(int) error { return steps.Acknowledge(ctx) })
		}, steps.Lease(lease), steps.Heartbeat(lease/10)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			var some *engine.Engine
			for range 2 {
				some = envEngine(t, envPool(t, dsn), engine.Config{Session: 10 * time.Second, Workflows: []steps.Definition{lengthy.Of(step)}})
				work(t, some)
			}
			r := effStart(t, some, lengthy, 0)
			if out := effSuccess(t, some, r); out < 2 {
				t.Errorf("it worked %d times", out)
			}
			info := effGet(t, some, r.ID)
			if len(info.History) != 1 || info.History[0].Attempt != 1 || info.History[0].EndedAt.Sub(info.History[0].GrantedAt) < runtime {
				t.Errorf("history: %+v", info.History)
			}
		})
	}
	t.Cleanup(func() {
		if calls.Load() != 2 {
			t.Errorf("%d executions of two jobs", calls.Load())
		}
	})
}
