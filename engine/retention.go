package engine

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawlworks/pawl/internal/db"
)

// Retention deletes ended runs that are older than the rule which somebody set in
// the database, and then their history; without a rule it does nothing.
//
// Invariants: the functions of the schema read the rule and the clock themselves,
// in the transaction that deletes; runs go before their history, so an interrupted
// sweep leaves history that nobody refers to, and the next one takes it up.

const (
	retireAfter = time.Minute
	retireEvery = time.Hour
	retireMost  = 1000
	retirePause = 20 * time.Millisecond
)

func (w *worker) retire(ctx context.Context) time.Duration {
	if keeps, err := w.e.db.Keeps(ctx); err != nil {
		return w.failedLoop(ctx, "reading the retention rule", err)
	} else if !keeps {
		return spread(retireEvery)
	}
	deleted := 0
	for _, shard := range w.e.shards {
		for behind := (uuid.UUID{}); ctx.Err() == nil; {
			r, err := w.e.db.RetireRuns(ctx, db.RetireRunsParams{Shard: shard, Behind: behind, Most: retireMost})
			if err != nil {
				return w.failedLoop(ctx, "deleting old runs", err)
			}
			deleted += int(r.Deleted)
			if r.Last == (uuid.UUID{}) || !sleep(ctx, retirePause) {
				break
			}
			behind = r.Last
		}
	}
	if deleted > 0 {
		w.log.Info("pawl: retention: runs that ended long enough ago are deleted", "runs", deleted)
	}
	for ctx.Err() == nil {
		part, err := w.e.db.RetirePartition(ctx)
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "55P03" {
			return spread(time.Minute) // somebody reads it
		}
		if err != nil {
			w.failedLoop(ctx, "deleting the history of old runs", err)
			return spread(time.Minute)
		}
		if part == "" {
			break
		}
		w.log.Info("pawl: retention: a day's history is dropped, or rid of what belongs to no run any more", "partition", part)
	}
	return spread(retireEvery)
}
