package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/internal/telemetry"
	"github.com/pawlworks/pawl/steps"
)

// What waits, is dead, uncertain or stranded, and how the database is, is told by age and number.
func TestMetricsDatabase(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	m, provider := metered(t)
	charge, dying, foreign := steps.Declare[int, int]("charge"), steps.Declare[int, int]("dying"), steps.Declare[int, int]("foreign")
	defs := []steps.Definition{
		charge.Of(steps.New("s", func(context.Context, int) (int, error) { return 0, errors.New("no answer") }).
			LookUp(func(context.Context, int) (steps.Verdict[int], error) { return steps.StillUnknown[int](time.Hour), nil }, time.Second)),
		dying.Of(steps.New("s", func(context.Context, int) (int, error) { return 0, steps.Permanent("NO_FUNDS", errors.New("no")) }))}
	e := effEngine(t, pool, engine.Config{Workflows: defs, MeterProvider: provider})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Work(ctx) }()
	m.moves(6, telemetry.PartitionsAhead)
	for _, none := range []telemetry.Metric{telemetry.QueueStranded, telemetry.DeadJobs, telemetry.UncertainEffects, telemetry.UncertainOverdue} {
		if n := m.total(none); n != 0 {
			t.Errorf("%s is %v without a cause", none.Name, n)
		}
	}
	effState(t, e, effStart(t, e, dying, 1).ID, engine.Failed)
	r := effStart(t, e, charge, 1)
	effUntil(t, "the effect has been asked for", func() bool {
		return effScan[bool](t, pool, "SELECT EXISTS (SELECT FROM pawl.job WHERE run_id = $1 AND state = 'uncertain' AND due_at > pawl.now() + interval '1 minute')", r.ID)
	})
	stop()
	if err := effSignal(t, "Work", ended); err != nil {
		t.Fatal(err)
	}
	other := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{foreign.Of(steps.New("s", same, steps.Queue("elsewhere")))}})
	effStart(t, other, foreign, 1)
	effExec(t, pool, "UPDATE pawl.job SET due_at = pawl.now() - interval '20 seconds' WHERE state = 'uncertain'")
	tx, err := pool.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(context.Background(), "SELECT FROM pawl.job WHERE state = 'uncertain' FOR UPDATE"); err != nil { // it can't be asked
		t.Fatal(err)
	}
	work(t, e)
	m.is(1, telemetry.QueueDue, "pawl.queue=elsewhere")
	m.is(1, telemetry.QueueStranded, "pawl.queue=elsewhere")
	m.moves(0, telemetry.QueueOldest, "pawl.queue=elsewhere")
	m.moves(0, telemetry.QueueStrandedOldest, "pawl.queue=elsewhere")
	m.is(1, telemetry.DeadJobs)
	m.moves(0, telemetry.DeadOldest)
	m.is(1, telemetry.UncertainEffects)
	m.moves(0, telemetry.UncertainOldest)
	m.moves(19, telemetry.UncertainOverdue)
	m.moves(0, telemetry.SnapshotAge, "pawl.kind=session")
	m.moves(0, telemetry.DeadRows)
}
