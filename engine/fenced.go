package engine

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawlworks/pawl/internal/db"
)

// fenced is the DBTX for the engine's last statement in a user's transaction:
// its limits and the locks that it has to wait for travel with it, in one
// round trip. Each is a statement of its own, so that the last sees what the
// locks were waited for.
type fenced struct {
	tx    pgx.Tx
	locks []statement
}

func (f fenced) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	var b pgx.Batch
	b.Queue(fenceLimit)
	for _, l := range f.locks {
		b.Queue(l.sql, l.args...)
	}
	b.Queue(sql, args...)
	r := f.tx.SendBatch(ctx, &b)
	for range 1 + len(f.locks) {
		if _, err := r.Exec(); err != nil {
			r.Close()
			return nil, err
		}
	}
	rows, err := r.Query()
	if err != nil {
		rows.Close()
		r.Close()
		return nil, err
	}
	return batchRows{rows, r}, nil
}

func (f fenced) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errors.ErrUnsupported // there is no such statement
}

func (f fenced) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := f.Query(ctx, sql, args...)
	return row{rows, err}
}

// batchRows ends its batch when it is closed.
type batchRows struct {
	pgx.Rows
	batch pgx.BatchResults
}

func (r batchRows) Close() {
	r.Rows.Close()
	r.batch.Close()
}

// statement is SQL of package db that is sent in other company than alone.
type statement struct {
	sql  string
	args []any
}

// stated notes what a query of package db would run.
func stated(run func(*db.Queries)) statement {
	var t tape
	run(db.New(&t))
	return t.statement
}

// tape is a DBTX that notes a statement and does not run it.
type tape struct{ statement }

var errTaped = errors.New("noted")

func (t *tape) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	t.statement = statement{sql, args}
	return pgconn.CommandTag{}, errTaped
}

func (t *tape) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	t.statement = statement{sql, args}
	return nil, errTaped
}

func (t *tape) QueryRow(_ context.Context, sql string, args ...any) pgx.Row {
	t.statement = statement{sql, args}
	return row{err: errTaped}
}
