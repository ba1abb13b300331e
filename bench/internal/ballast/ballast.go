// Package ballast lays rows into Pawl's tables by SQL, quickly: runs that are
// pending, scheduled, unknown to the worker, or leased by somebody else.
package ballast

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Rows are what to lay.
type Rows struct {
	N        int
	Workflow string        // whose runs they are
	Input    string        // SQL that makes a run's input of a number i
	Priority int           // of the runs
	DueIn    time.Duration // from now
	Lease    time.Duration // how long the lease still is; 0: pending, nobody's
}

// chunk is how many rows are one statement.
const chunk = 100_000

// Lay lays the rows. The workflow must be known to the tables.
func Lay(ctx context.Context, pool *pgxpool.Pool, r Rows) error {
	owner := uuid.New()
	if r.Lease > 0 { // a session as good as the leases
		if _, err := pool.Exec(ctx, `INSERT INTO pawl.session (id, name, routes, floors, started_at, expires_at)
			VALUES ($1, 'ballast', '{}', '{}', clock_timestamp(), clock_timestamp() + interval '1 day')`, owner); err != nil {
			return err
		}
	}
	var expires time.Time
	if err := pool.QueryRow(ctx, "SELECT clock_timestamp() + $1 * interval '1 millisecond'", r.Lease.Milliseconds()).Scan(&expires); err != nil {
		return err
	}
	for from := 0; from < r.N; from += chunk {
		to := min(from+chunk, r.N)
		if _, err := pool.Exec(ctx, strings.ReplaceAll(sqlRows, "INPUT", r.Input), r.Workflow, int16(r.Priority), from+1, to,
			r.DueIn.Milliseconds(), r.Lease > 0, owner, expires); err != nil {
			return fmt.Errorf("laying rows: %w", err)
		}
	}
	return nil
}

// Unknown adds a workflow to the tables that no worker knows.
func Unknown(ctx context.Context, pool *pgxpool.Pool, workflow string) error {
	_, err := pool.Exec(ctx, `WITH d AS (INSERT INTO pawl.definition (workflow, hash, graph, queue, active_at)
		  VALUES ($1, '\x00', convert_to('{"steps":[{"name":"nobody"}]}', 'UTF8'), 'default', clock_timestamp()) RETURNING id)
		INSERT INTO pawl.route (definition, queue, priority) SELECT d.id, 'default', p FROM d, generate_series(0, 3) AS p`, workflow)
	return err
}

const sqlRows = `WITH t AS MATERIALIZED (
	  SELECT clock_timestamp() AS now, d.id AS definition, q.id AS route
	    FROM (SELECT max(id) AS id FROM pawl.definition WHERE workflow = $1) d JOIN pawl.route q ON q.definition = d.id AND q.priority = $2
	   ORDER BY q.id LIMIT 1
	), n AS MATERIALIZED (
	  -- Ids are UUIDv7 of the moment, as the engine's are; the number makes them differ.
	  SELECT i, (lpad(to_hex((extract(epoch FROM t.now) * 1000)::bigint), 12, '0') || '70008' || lpad(to_hex(i), 15, '0'))::uuid AS id,
	         t.now, t.definition, t.route
	    FROM t, generate_series($3::int, $4::int) AS i
	), r AS (
	  INSERT INTO pawl.run (shard, id, workflow, definition, key, ordering, generation, priority, tags, traceparent, tracestate, encoding, input, created_at)
	  SELECT 0, n.id, $1, n.definition, NULL, '', 1, $2, '{}', '', '', 'json', convert_to(INPUT, 'UTF8'), n.now FROM n
	)
	INSERT INTO pawl.job (shard, run_id, route, due_at, state, token, attempt, owner, granted_at, expires_at, deadline_at)
	SELECT 0, n.id, n.route, n.now + $5::bigint * interval '1 millisecond', CASE WHEN l.is THEN 'running' ELSE 'pending' END,
	       l.is::int, l.is::int, CASE WHEN l.is THEN $7::uuid END, CASE WHEN l.is THEN n.now END,
	       CASE WHEN l.is THEN $8::timestamptz END, CASE WHEN l.is THEN $8::timestamptz END
	  FROM n, (SELECT $6::boolean AS is) l`
