package floor

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// newRunID is a UUIDv7 whose rand_a bits carry the shard, as Pawl makes them in SQL.
func newRunID(shard uint16) (id uuid.UUID) {
	_, _ = rand.Read(id[8:])
	binary.BigEndian.PutUint64(id[:8], uint64(time.Now().UnixMilli())<<16|0x7000|uint64(shard))
	id[8] = id[8]&0x3f | 0x80
	return id
}

// Enqueue copies runs and jobs, a thousand in one transaction.
func (f *floor) Enqueue(ctx context.Context, n int) error {
	for ; n > 0; n -= 1000 {
		if err := f.copy(ctx, min(n, 1000)); err != nil {
			return err
		}
	}
	if w := f.worker.Load(); w != nil {
		w.kick()
	}
	return nil
}

func (f *floor) copy(ctx context.Context, n int) error {
	now, ids := time.Now(), make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = newRunID(0)
	}
	return pgx.BeginFunc(ctx, f.o.Pool, func(tx pgx.Tx) error {
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"pawl", "run"},
			[]string{"shard", "id", "workflow", "definition", "key", "ordering", "generation", "priority", "tags", "traceparent", "tracestate", "encoding", "input", "created_at"},
			pgx.CopyFromSlice(n, func(i int) ([]any, error) {
				return []any{int16(0), ids[i], Workflow, f.definition, nil, "", int32(1), int16(1), []string{}, "", "", "json", f.o.Payload, now}, nil
			})); err != nil {
			return err
		}
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"pawl", "job"}, []string{"shard", "run_id", "route", "due_at"},
			pgx.CopyFromSlice(n, func(i int) ([]any, error) { return []any{int16(0), ids[i], f.route, now}, nil }))
		return err
	})
}
