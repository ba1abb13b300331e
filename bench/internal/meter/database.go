package meter

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Queryer is a pool or a connection.
type Queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// WAL is where the next byte of WAL goes.
func WAL(ctx context.Context, q Queryer) (int64, error) {
	var at int64
	err := q.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").Scan(&at)
	return at, err
}

// Redo is where the last checkpoint began: two readings differ if there was
// one in between, and full-page images after it.
func Redo(ctx context.Context, q Queryer) (string, error) {
	var at string
	err := q.QueryRow(ctx, "SELECT redo_lsn::text FROM pg_control_checkpoint()").Scan(&at)
	return at, err
}

// FullPageImages is how many the server has written since its start; backends
// tell it at their ends at the latest.
func FullPageImages(ctx context.Context, q Queryer) (int64, error) {
	var n int64
	err := q.QueryRow(ctx, "SELECT wal_fpi FROM pg_stat_wal").Scan(&n)
	return n, err
}

// Disk is the size of the database's tables and indexes, the system's own left out.
func Disk(ctx context.Context, q Queryer) (int64, error) {
	var n int64
	err := q.QueryRow(ctx, `SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
		  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		 WHERE c.relkind IN ('r', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_'`).Scan(&n)
	return n, err
}

const control = `^\s*(begin|start transaction|commit|end|rollback|abort|savepoint|release|set |reset |discard)`

// Statements is how many statements a database has executed, BEGIN, COMMIT and
// the like left out, as pg_stat_statements counts them.
func Statements(ctx context.Context, q Queryer, database string) (n int64, err error) {
	err = q.QueryRow(ctx, `SELECT coalesce(sum(s.calls) FILTER (WHERE s.query !~* $2), 0)::bigint
		  FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = $1`, database, control).Scan(&n)
	return n, err
}
