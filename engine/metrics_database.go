package engine

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/telemetry"
)

// What a scrape tells of the database. It is read once for all who ask within
// gaugesFor; what can't be read in time is left out, not guessed.
const (
	gaugesFor    = 5 * time.Second
	gaugesWithin = 2 * time.Second
	gaugesMost   = 1000 // jobs counted of each route and shard
)

type databaseGauges struct {
	mu     sync.Mutex
	at     time.Time
	queues []db.QueueGaugesRow
	jobs   db.JobGaugesRow
	health db.HealthRow
	snaps  []db.SnapshotsRow
	read   bool
}

// fresh reads again what is too old. False: it can't be told.
func (g *databaseGauges) fresh(ctx context.Context, e *Engine) bool {
	if !g.at.IsZero() && time.Since(g.at) < gaugesFor {
		return g.read
	}
	ctx, cancel := context.WithTimeout(ctx, gaugesWithin)
	defer cancel()
	err := g.ask(ctx, e)
	g.at, g.read = time.Now(), err == nil
	if err != nil {
		e.log.Debug("pawl: reading gauges; they are left out", "error", err)
	}
	return g.read
}

func (g *databaseGauges) ask(ctx context.Context, e *Engine) (err error) {
	if g.queues, err = e.db.QueueGauges(ctx, db.QueueGaugesParams{Shards: e.shards, Most: gaugesMost}); err != nil {
		return err
	}
	if g.jobs, err = e.db.JobGauges(ctx, db.JobGaugesParams{Shards: e.shards, Most: gaugesMost}); err != nil {
		return err
	}
	if g.health, err = e.db.Health(ctx); err != nil {
		return err
	}
	g.snaps, err = e.db.Snapshots(ctx)
	return err
}

// observedDatabase registers the gauges of the database.
func (w *worker) observedDatabase() (stop func()) {
	of := &observing{meter: w.e.metrics.meter}
	due, oldest, stranded, strandedOldest := of.gauge(telemetry.QueueDue), of.age(telemetry.QueueOldest), of.gauge(telemetry.QueueStranded), of.age(telemetry.QueueStrandedOldest)
	dead, deadOldest, uncertain, uncertainOldest := of.gauge(telemetry.DeadJobs), of.age(telemetry.DeadOldest), of.gauge(telemetry.UncertainEffects), of.age(telemetry.UncertainOldest)
	overdue, snapshot, lag := of.age(telemetry.UncertainOverdue), of.age(telemetry.SnapshotAge), of.gauge(telemetry.SnapshotLag)
	rows, ahead := of.gauge(telemetry.DeadRows), of.gauge(telemetry.PartitionsAhead)
	g := &w.e.metrics.database
	return of.tell(func(ctx context.Context, o metric.Observer) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if !g.fresh(ctx, w.e) {
			return
		}
		for _, q := range g.queues {
			by := w.e.metrics.of(label{queue: q.Queue}).observe
			o.ObserveInt64(due, q.Due, by)
			o.ObserveFloat64(oldest, max(q.Oldest, 0), by)
			o.ObserveInt64(stranded, q.Stranded, by)
			o.ObserveFloat64(strandedOldest, max(q.StrandedOldest, 0), by)
		}
		o.ObserveInt64(dead, g.jobs.Dead)
		o.ObserveFloat64(deadOldest, max(g.jobs.DeadOldest, 0))
		o.ObserveInt64(uncertain, g.jobs.Uncertain)
		o.ObserveFloat64(uncertainOldest, max(g.jobs.UncertainOldest, 0))
		o.ObserveFloat64(overdue, g.jobs.Overdue)
		o.ObserveInt64(rows, g.health.DeadRows)
		o.ObserveInt64(ahead, int64(g.health.Ahead))
		for _, s := range g.snaps {
			by := metric.WithAttributes(telemetry.Kind.String(s.Kind), telemetry.Holder.String(s.Who))
			o.ObserveInt64(lag, s.Transactions, by)
			if s.Seconds >= 0 { // of standbys and their slots it is not known
				o.ObserveFloat64(snapshot, s.Seconds, by)
			}
		}
	})
}
