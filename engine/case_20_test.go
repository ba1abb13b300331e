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

var orphan = steps.Declare[int, int]("orphan")

// TestCase20 starts a worker again under the name of one whose network is
// gone. The name means nothing: the new one takes nothing for its own, and the
// jobs of the dead one come back when its session has lapsed, no sooner and
// not never.
func TestCase20(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pod-7", ` "it's"  pod 7, 日本 `, `'; DROP TABLE pawl.session; --`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			pool := envPool(t, dsn)
			started := make(chan struct{}, 3)
			var calls atomic.Int64
			lost, network := envProxied(t, dsn)
			dead := envEngine(t, lost, engine.Config{Name: name, Session: 4 * time.Second, Logger: (&envLog{}).logger(), Workflows: []steps.Definition{
				orphan.Of(steps.New("step", func(ctx context.Context, n int) (int, error) { started <- struct{}{}; <-ctx.Done(); return -1, nil }))}})
			runs := []engine.Run[int]{effStart(t, dead, orphan, 1), effStart(t, dead, orphan, 2), effStart(t, dead, orphan, 3)}
			stop := work(t, dead)
			for range runs {
				select {
				case <-started:
				case <-time.After(envPatience):
					t.Fatal("the first worker does not work")
				}
			}
			network.StallAll()

			e := envEngine(t, pool, engine.Config{Name: name, Workflows: []steps.Definition{
				orphan.Of(steps.New("step", func(_ context.Context, n int) (int, error) { calls.Add(1); return n * 10, nil }))}})
			work(t, e)
			own := effStart(t, e, orphan, 4)
			if out := effSuccess(t, e, own); out != 40 {
				t.Error(out)
			}
			for i, r := range runs {
				r, err := engine.Handle(context.Background(), e, orphan, r.ID)
				if err != nil {
					t.Fatal(err)
				}
				if out := effSuccess(t, e, r); out != 10*(i+1) {
					t.Error(out)
				}
			}
			if calls.Load() != 4 {
				t.Errorf("%d calls", calls.Load())
			}
			if n := effScan[int](t, pool, "SELECT count(*) FROM pawl.session WHERE name = $1", name); n != 2 {
				t.Errorf("%d sessions of that name", n)
			}
			if n := effScan[int](t, pool, `SELECT count(*) FROM pawl.history h JOIN pawl.session s ON s.id = h.owner
				WHERE h.event = 'lapsed' AND h.writer = 'recovery' AND s.closed_at >= s.expires_at AND h.ended_at >= s.closed_at`); n != 3 {
				t.Errorf("%d of 3 jobs were taken back after the session had lapsed", n)
			}
			if n := effScan[int](t, pool, "SELECT count(*) FROM pawl.history"); n != 7 {
				t.Errorf("%d transitions", n)
			}
			network.Release()
			stop()
		})
	}
}
