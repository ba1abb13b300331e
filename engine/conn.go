package engine

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/internal/db"
)

// Every statement of the engine travels as one pipelined transaction, one
// round trip: BEGIN at read committed (a user's default may be serializable,
// and a session's SET does not survive a transaction pooler), a search_path in
// which nothing hides PostgreSQL's own functions and operators, no sequential
// scans (a plan cached while a table had one page would read all of it when it
// has a million rows) and no compiling (where there is nothing but a sequential
// scan it looks dearer than anything, and takes 40 ms each time), one plan for
// all values (planning anew for each costs milliseconds, and the statements are
// written so that there is only one good plan), its time-outs on the server, the
// statement, COMMIT. Nothing is reported before COMMIT has
// answered. The context's deadline is only the backstop behind the server's
// time-outs: an ended context costs the connection.
const (
	begin    = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
	limits   = "SELECT " + safePath + ", " + byIndex + ", pg_catalog.set_config('statement_timeout', '10s', true), pg_catalog.set_config('lock_timeout', '3s', true)"
	safePath = "pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)"
	byIndex  = "pg_catalog.set_config('enable_seqscan', 'off', true), pg_catalog.set_config('jit', 'off', true), " +
		"pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true)"
	backstop    = 15 * time.Second
	acquireWait = 30 * time.Second
)

// conn is the DBTX that sqlc's code runs on.
type conn struct {
	pool *pgxpool.Pool
	lane *share // for what must not wait until users' code gives a connection back
	kept *kept  // for a writer under load
}

func queries(pool *pgxpool.Pool) *db.Queries { return db.New(conn{pool: pool}) }

// acquire takes a connection, and returns how to give it back.
func (c conn) acquire(ctx context.Context) (*pgxpool.Conn, func(), error) {
	if c.kept != nil {
		return c.kept.acquire(ctx, c.pool)
	}
	if c.lane != nil {
		return c.lane.acquire(ctx, c.pool)
	}
	p, err := acquireWithin(ctx, c.pool, acquireWait)
	if err != nil {
		return nil, nil, err
	}
	return p, p.Release, nil
}

func acquireWithin(ctx context.Context, pool *pgxpool.Pool, most time.Duration) (*pgxpool.Conn, error) {
	ctx, stop := context.WithTimeout(ctx, most)
	defer stop()
	return pool.Acquire(ctx)
}

func (c conn) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	rows, err := c.Query(ctx, sql, args...)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	for rows.Next() {
	}
	rows.Close()
	return rows.CommandTag(), rows.Err()
}

func (c conn) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := c.Query(ctx, sql, args...)
	return row{rows, err}
}

func (c conn) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	p, giveBack, err := c.acquire(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, backstop)
	var b pgx.Batch
	b.Queue(begin)
	b.Queue(limits)
	b.Queue(sql, args...)
	b.Queue("COMMIT")
	t := &transaction{conn: p, giveBack: giveBack, batch: p.SendBatch(ctx, &b), cancel: cancel}
	for range 2 {
		if _, err := t.batch.Exec(); err != nil {
			return nil, t.finish(err)
		}
	}
	rows, err := t.batch.Query()
	if err != nil {
		rows.Close()
		return nil, t.finish(err)
	}
	t.Rows = rows
	return t, nil
}

// transaction is the rows of the one statement; reading to their end commits.
type transaction struct {
	pgx.Rows
	conn     *pgxpool.Conn
	giveBack func()
	batch    pgx.BatchResults
	cancel   context.CancelFunc
	done     bool
	err      error
}

func (t *transaction) Next() bool {
	if t.done {
		return false
	}
	if t.Rows.Next() {
		return true
	}
	t.finish(t.Rows.Err())
	return false
}

func (t *transaction) Close() {
	if !t.done {
		t.Rows.Close()
		t.finish(t.Rows.Err())
	}
}

func (t *transaction) Err() error {
	if t.done {
		return t.err
	}
	return t.Rows.Err()
}

// finish reads COMMIT's answer and gives the connection back.
func (t *transaction) finish(err error) error {
	if t.done {
		return t.err
	}
	t.done = true
	if err == nil {
		_, err = t.batch.Exec()
	}
	if e := t.batch.Close(); err == nil {
		err = e
	}
	if err != nil && !t.conn.Conn().IsClosed() {
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "25006" { // read only: a server that was demoted
			t.conn.Conn().Close(context.Background())
		} else if t.conn.Conn().PgConn().TxStatus() != 'I' {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			t.conn.Exec(ctx, "ROLLBACK") // if it fails the pool throws the connection away
			cancel()
		}
	}
	t.giveBack()
	t.cancel()
	t.err = err
	return err
}

type row struct {
	rows pgx.Rows
	err  error
}

func (r row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
