package view

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/internal/db"
)

// horizon is what a round of Tail has to know before it reads.
type horizon struct {
	next       time.Time // from when on the next round must read: all before is visible to this one
	oldest     uuid.UUID // the oldest run that has a job
	ended      []string  // transactions that wrote for long, and have ended since the last round
	endedSince time.Time // the beginning of the oldest of them
}

func (t *Tail) horizon(ctx context.Context, pool Beginner, r *Reader) (h horizon, err error) {
	err = inTransaction(ctx, pool, pgx.ReadCommitted, anyValues, func(q *db.Queries) error {
		rows, err := q.Writers(ctx)
		if err != nil {
			return fmt.Errorf("pawl: looking for transactions that write: %w", err)
		}
		var now time.Time
		for _, w := range rows {
			if w.Xid == "" {
				if now, h.next = w.Since, w.Since; w.Hidden {
					h.next = now.Add(-unseen)
				}
			}
		}
		writing := map[string]time.Time{}
		for _, w := range rows {
			switch {
			case w.Xid == "":
			case now.Sub(w.Since) > t.longest:
				writing[w.Xid] = w.Since
			case w.Since.Before(h.next):
				h.next = w.Since
			}
		}
		for xid, since := range t.writing {
			if _, still := writing[xid]; !still {
				h.ended, h.endedSince = append(h.ended, xid), earliest(h.endedSince, since)
			}
		}
		t.writing, h.next = writing, h.next.Add(-t.slack)
		ids, err := q.OldestJobs(ctx, r.shards)
		h.oldest = uuid.Max
		for _, id := range ids {
			if newestFirst(id, h.oldest) > 0 {
				h.oldest = id
			}
		}
		return err
	})
	return h, err
}
