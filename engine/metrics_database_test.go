package engine_test

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pglocal"
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
	effStart(t, other, foreign, 1)
	m.moves(0, telemetry.SnapshotLag, "pawl.kind=session")
	m.moves(0, telemetry.DeadRows)
}

// A standby, and the slot of one that has gone, hold back the clearing away of
// dead rows as an open transaction does.
func TestMetricsStandby(t *testing.T) {
	t.Parallel()
	server := pgtest.Own(t, pglocal.Options{})
	url := pgtest.DatabaseOn(t, server)
	pool := effPool(t, url)
	m, provider := metered(t)
	w := steps.Declare[int, int]("w")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("s", same))}, MeterProvider: provider})
	work(t, e)
	xmin := effScan[uint32](t, pool, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint % 4294967296")
	effSuccess(t, e, effStart(t, e, w, 1))
	effExec(t, pool, "SELECT pg_create_physical_replication_slot('gone')")

	stop := standby(t, url, xmin, "")
	m.moves(0, telemetry.SnapshotLag, "pawl.kind=standby")
	stop()
	standby(t, url, xmin, "SLOT gone")()
	m.moves(0, telemetry.SnapshotLag, "pawl.kind=replication slot", "pawl.snapshot.holder=gone")
	if age := m.total(telemetry.SnapshotAge); age != 0 {
		t.Errorf("a slot's age is not known, and told as %v", age)
	}
}

// standby says of itself what a server does that follows with hot_standby_feedback.
func standby(t *testing.T, url string, xmin uint32, slot string) (stop func()) {
	t.Helper()
	ctx := context.Background()
	c, err := pgconn.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	c.RuntimeParams["replication"] = "true"
	conn, err := pgconn.ConnectConfig(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	conn.Frontend().Send(&pgproto3.Query{String: "START_REPLICATION " + slot + " PHYSICAL 0/0"})
	feedback := binary.BigEndian.AppendUint64([]byte{'h'}, 0)
	feedback = binary.BigEndian.AppendUint32(feedback, xmin)
	feedback = append(feedback, make([]byte, 12)...) // its epoch, and no catalogue's
	conn.Frontend().Send(&pgproto3.CopyData{Data: feedback})
	if err := conn.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	return func() { _ = conn.Close(ctx) }
}
