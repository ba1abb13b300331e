package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// A thousand cancelled runs that wait for a person do not stand in the way of
// other cancellations.
func TestRegressionCancelStarved(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	ctx := context.Background()
	w, v := steps.Declare[int, int]("waits"), steps.Declare[int, int]("blocks")
	began := make(chan struct{}, 1)
	e := effEngine(t, pool, engine.Config{Drain: time.Second, Workflows: []steps.Definition{
		w.Of(steps.New("pay", func(_ context.Context, n int) (int, error) { return n, nil }, steps.Manual())),
		v.Of(steps.New("s", func(ctx context.Context, n int) (int, error) {
			began <- struct{}{}
			<-ctx.Done()
			return 0, context.Cause(ctx)
		}))}})
	if _, err := engine.StartMany(ctx, e, w, make([]int, 1000), engine.After(time.Hour)); err != nil {
		t.Fatal(err)
	}
	effExec(t, pool, "UPDATE pawl.job SET state = 'uncertain', uncertain_at = now(), due_at = 'infinity'") // as a provider's outage leaves them
	effExec(t, pool, "UPDATE pawl.run SET cancelling = true, cancelled_by = 'somebody', cancel_reason = 'x'")
	slipped := effStart(t, e, v, 1, engine.After(time.Hour))
	effExec(t, pool, "UPDATE pawl.run SET cancelling = true WHERE id = $1", slipped.ID) // Cancel committed, its process died
	work(t, e)
	r := effStart(t, e, v, 1)
	effSignal(t, "begin", began)
	if err := e.Cancel(ctx, r.ID, effPerson); err != nil {
		t.Fatal(err)
	}
	effUntil(t, "both are cancelled", func() bool {
		return effGet(t, e, r.ID).State == engine.Cancelled && effGet(t, e, slipped.ID).State == engine.Cancelled
	})
	effExec(t, pool, "UPDATE pawl.job SET state = 'pending', uncertain_at = NULL WHERE state = 'uncertain'")
}

// The engine's own refusal of a cursor says nothing about a long step's effect:
// it is asked about.
func TestRegressionLongLookUp(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("long")
	var charges atomic.Int64
	e := effEngine(t, pool, engine.Config{MaxPayload: 1000, Workflows: []steps.Definition{w.Of(steps.NewLong("pay", func(ctx context.Context, n int, cur *steps.Cursor[string]) (int, error) {
		charges.Add(1) // the effect happens, then its position is saved
		return n, cur.Commit(ctx, strings.Repeat("x", 2000))
	}).LookUp(func(_ context.Context, n int) (steps.Verdict[int], error) { return steps.Happened(n), nil }, time.Second))}})
	work(t, e)
	if out := effSuccess(t, e, effStart(t, e, w, 7)); out != 7 || charges.Load() != 1 {
		t.Errorf("got %d, after %d charges", out, charges.Load())
	}
}

// A nil option of Replay is none.
func TestRegressionNilReplayOption(t *testing.T) {
	t.Parallel()
	e := effEngine(t, effPool(t, pgtest.Database(t)), engine.Config{})
	if err := e.Replay(context.Background(), "x", effPerson, nil); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
