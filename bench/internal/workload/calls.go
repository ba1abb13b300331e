package workload

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/bench/internal/meter"
	"github.com/pawlworks/pawl/bench/internal/report"
)

// trackCalls makes pg_stat_statements count the statements of connections that
// are opened from now on.
func (e *Env) trackCalls(ctx context.Context) error {
	if !e.Statements {
		return nil
	}
	for _, set := range []string{"pg_stat_statements.track = 'top'", "pg_stat_statements.track_planning = on"} {
		if _, err := e.admin.Exec(ctx, "ALTER DATABASE "+pgx.Identifier{e.database()}.Sanitize()+" SET "+set); err != nil {
			return err
		}
	}
	return nil
}

// countCalls begins to count; nil if the server could not load pg_stat_statements.
func (e *Env) countCalls(ctx context.Context) (func() (int64, error), error) {
	if !e.Statements {
		return nil, nil
	}
	conn, err := pgx.Connect(ctx, e.AdminURL)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_stat_statements_reset()"); err != nil {
		return nil, err
	}
	return func() (int64, error) { return meter.Statements(ctx, conn, e.database()) }, nil
}

// mostCalled tells the statements that were called most.
func (e *Env) mostCalled(ctx context.Context, most int) ([]string, error) {
	conn, err := pgx.Connect(ctx, e.AdminURL)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, `SELECT s.calls, left(regexp_replace(s.query, '\s+', ' ', 'g'), 60) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
		 WHERE d.datname = $1 ORDER BY s.calls DESC, 2 LIMIT $2`, e.database(), most)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var n int64
		var text string
		if err := rows.Scan(&n, &text); err != nil {
			return nil, err
		}
		out = append(out, fmt.Sprintf("%d× %s", n, text))
	}
	return out, rows.Err()
}

// dearest tells the statements that took the server longest, by the step.
func (e *Env) dearest(ctx context.Context, most int, steps float64) ([]string, error) {
	conn, err := pgx.Connect(ctx, e.AdminURL)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, `SELECT s.calls, s.total_exec_time * 1000, s.total_plan_time * 1000, s.rows, s.wal_bytes::float8,
		       left(regexp_replace(s.query, '\s+', ' ', 'g'), 60)
		  FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
		 WHERE d.datname = $1 ORDER BY s.total_exec_time + s.total_plan_time DESC LIMIT $2`, e.database(), most)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var calls, n int64
		var exec, plan, wal float64
		var text string
		if err := rows.Scan(&calls, &exec, &plan, &n, &wal, &text); err != nil {
			return nil, err
		}
		out = append(out, fmt.Sprintf("%d calls, %s rows a call, %s µs executing and %s µs planning a step, %s B of WAL a step: %s", calls,
			report.Number(float64(n)/float64(max(calls, 1))), report.Number(exec/steps), report.Number(plan/steps), report.Number(wal/steps), text))
	}
	return out, rows.Err()
}
