package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// The max runtime is a deadline in the row, which no renewal moves: whether a
// claim granted the lease or a hand-over, whether the step is silent, moves its
// cursor or acknowledges. What the worker writes of an attempt it writes before.
func TestMaxRuntimeInRows(t *testing.T) {
	t.Parallel()
	const lease, most = time.Second, 2500 * time.Millisecond
	pool := effPool(t, pgtest.Database(t))
	// Every version of a row that somebody holds, but the one in which a claim,
	// which does not know the step, has granted it.
	effExec(t, pool, "CREATE TABLE public.held (run_id uuid, node int, deadline interval, expiry interval)")
	effExec(t, pool, `CREATE FUNCTION public.note_held() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN INSERT INTO public.held VALUES (NEW.run_id, NEW.node, NEW.deadline_at - NEW.granted_at, NEW.expires_at - NEW.granted_at); RETURN NULL; END'`)
	effExec(t, pool, `CREATE TRIGGER note_held AFTER UPDATE ON pawl.job FOR EACH ROW
		WHEN (NEW.state = 'running' AND OLD.state = 'running') EXECUTE FUNCTION public.note_held()`)

	onward := func(ctx context.Context, step func() error) (int, error) {
		for err := step(); ; err = step() {
			if err != nil {
				return 0, err
			}
			select {
			case <-time.After(lease / 20): // the work of one round
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
	}
	opts := []steps.Option{steps.MaxRuntime(most), steps.Retry{Attempts: 1}, steps.RetryUnknown{Attempts: 1}}
	short := append([]steps.Option{steps.Lease(lease), steps.Heartbeat(lease / 4)}, opts...)
	kinds := map[string]steps.Step[int, int]{
		"silent": steps.New("held", func(ctx context.Context, _ int) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}, append([]steps.Option{steps.Lease(most)}, opts...)...),
		"cursor": steps.NewLong("held", func(ctx context.Context, _ int, cur *steps.Cursor[int]) (int, error) {
			return onward(ctx, func() error { return cur.Commit(ctx, cur.At()+1) })
		}, short...),
		"acknowledge": steps.New("held", func(ctx context.Context, _ int) (int, error) {
			return onward(ctx, func() error { return steps.Acknowledge(ctx) })
		}, short...),
	}
	first := steps.New("first", func(_ context.Context, n int) (int, error) { return n, nil })
	var defs []steps.Definition
	claimed, handed := map[string]steps.Workflow[int, int]{}, map[string]steps.Workflow[int, int]{}
	for kind, step := range kinds {
		claimed[kind], handed[kind] = steps.Declare[int, int]("claimed-"+kind), steps.Declare[int, int]("handed-"+kind)
		defs = append(defs, claimed[kind].Of(step), handed[kind].Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
			return step.Do(f, first.Do(f, in))
		}))
	}
	e := effEngine(t, pool, engine.Config{Workflows: defs})
	work(t, e)
	type started struct {
		name, id string
		node     int // of the step that is held
	}
	var runs []started
	for kind := range kinds {
		runs = append(runs, started{"claimed, " + kind, effStart(t, e, claimed[kind], 1).ID, 0}, started{"handed over, " + kind, effStart(t, e, handed[kind], 1).ID, 1})
	}
	for _, r := range runs {
		info := effHurried(t, pool, e, r.id, engine.Failed)
		for _, h := range info.History[r.node:] {
			if d := h.EndedAt.Sub(h.GrantedAt); h.Writer == "worker" && d >= most {
				t.Errorf("%s: attempt %d ended by %s after %v, of %v", r.name, h.Attempt, h.Code, d, most)
			}
		}
		var rows, wrong int
		var longest time.Duration
		if err := pool.QueryRow(context.Background(), `SELECT count(*), count(*) FILTER (WHERE deadline <> $3 OR expiry > $3), max(expiry)
			FROM public.held WHERE run_id = $1 AND node = $2`, r.id, r.node, most).Scan(&rows, &wrong, &longest); err != nil {
			t.Fatal(err)
		}
		if wrong > 0 {
			t.Errorf("%s: %d of %d versions of its row are not of %v at most", r.name, wrong, rows, most)
		}
		if longest <= lease {
			t.Errorf("%s: never renewed: held for %v at most", r.name, longest)
		}
	}
}
