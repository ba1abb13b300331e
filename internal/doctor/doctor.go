// Package doctor asks a database for what can't be if every guarantee holds.
package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/internal/db"
)

// settings of the one transaction: a time-out on the server, since the queries
// read everything, and a search_path in which nothing hides PostgreSQL's own.
const settings = "SELECT pg_catalog.set_config('statement_timeout', '600s', true), pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)"

// Violation is something that can't be.
type Violation struct {
	Kind string // such as run-without-job
	What string // which, in words
}

func (v Violation) String() string { return v.Kind + ": " + v.What }

// Beginner is a pool or a connection.
type Beginner interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// Check returns all violations in one snapshot, at most a thousand. It changes nothing.
func Check(ctx context.Context, pool Beginner) ([]Violation, error) {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, fmt.Errorf("pawl: doctor: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = tx.Rollback(ctx) // nothing was written
	}()
	if _, err := tx.Exec(ctx, settings); err != nil {
		return nil, fmt.Errorf("pawl: doctor: %w", err)
	}
	rows, err := db.New(tx).Violations(ctx)
	if err != nil {
		return nil, fmt.Errorf("pawl: doctor: %w", err)
	}
	vs := make([]Violation, 0, len(rows))
	for _, r := range rows {
		vs = append(vs, Violation{r.Kind, r.What})
	}
	return vs, nil
}
