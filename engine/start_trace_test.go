package engine_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/propagation"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// The trace context of who starts a run is stored with it, however it is
// started; who has none stores none.
func TestStartKeepsTrace(t *testing.T) {
	t.Parallel()
	const parent, state = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=t61rcWkgMzE,other=00f067aa0ba902b7"
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("traced")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("step", func(_ context.Context, n int) (int, error) { return n, nil }))}})
	none := context.Background()
	traced := propagation.TraceContext{}.Extract(none, propagation.MapCarrier{"traceparent": parent, "tracestate": state})
	startTx := func(ctx context.Context) (r engine.Run[int], err error) {
		err = pgx.BeginFunc(none, pool, func(tx pgx.Tx) error {
			r, err = engine.StartTx(ctx, e, tx, w, 1)
			return err
		})
		return r, err
	}
	for verb, start := range map[string]func(context.Context) ([]engine.Run[int], error){
		"Start": func(ctx context.Context) ([]engine.Run[int], error) {
			r, err := engine.Start(ctx, e, w, 1)
			return []engine.Run[int]{r}, err
		},
		"StartTx": func(ctx context.Context) ([]engine.Run[int], error) {
			r, err := startTx(ctx)
			return []engine.Run[int]{r}, err
		},
		"StartMany": func(ctx context.Context) ([]engine.Run[int], error) {
			return engine.StartMany(ctx, e, w, []int{1, 2, 3})
		},
	} {
		for ctx, want := range map[context.Context][2]string{none: {}, traced: {parent, state}} {
			runs, err := start(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range runs {
				var got [2]string
				if err := pool.QueryRow(none, "SELECT traceparent, tracestate FROM pawl.run WHERE id = $1", r.ID).Scan(&got[0], &got[1]); err != nil {
					t.Fatal(err)
				}
				if info := effGet(t, e, r.ID); got != want || info.TraceParent != want[0] {
					t.Errorf("%s stored %q and tells %q, not %q", verb, got, info.TraceParent, want)
				}
			}
		}
	}
}
