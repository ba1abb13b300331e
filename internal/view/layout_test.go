package view

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/internal/pgtest"
)

// layout is a database with much behind it: ended runs, and a tenth as many that
// live, most of which are due. Two in a thousand of all have failed, some fail
// and are tried again, some effects are not settled. All tables look empty to the
// planner until they are analysed.
func layout(t testing.TB, ended int) *pgxpool.Pool {
	t.Helper()
	pgtest.SkipDoctor(t) // rows, and nobody who made them
	pool := pgtest.Pool(t)
	for _, sql := range []string{
		`DO $$ DECLARE p text; BEGIN
			FOR p IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'pawl.history'::regclass LOOP
				EXECUTE 'ALTER TABLE ' || p || ' SET (autovacuum_enabled = off)';
			END LOOP; END $$`,
		"ALTER TABLE pawl.run SET (autovacuum_enabled = off)", "ALTER TABLE pawl.job SET (autovacuum_enabled = off)", "ALTER TABLE pawl.key SET (autovacuum_enabled = off)",
		`INSERT INTO pawl.definition (workflow, hash, graph, queue, active_at)
			SELECT w, 'x', convert_to('{"steps":[{"name":"first"},{"name":"second"},{"name":"third"}]}', 'UTF8'), 'default', now() FROM unnest('{order,mail}'::text[]) w`,
		"INSERT INTO pawl.route (definition, queue, priority) SELECT d.id, q, p FROM pawl.definition d, unnest('{default,other}'::text[]) q, generate_series(0, 3) p ORDER BY 1, 2, 3",
		`INSERT INTO pawl.session (id, name, routes, floors, started_at, expires_at, host, pid, build, pawl)
			SELECT gen_random_uuid(), 'worker-' || i, (SELECT array_agg(id) FROM pawl.route), (SELECT array_agg(0) FROM pawl.route), now(), now() + interval '1 day', 'host', i, 'b', 'p' FROM generate_series(1, 20) i`,
		"INSERT INTO pawl.session SELECT gen_random_uuid(), 'old', '{}', '{}', now() - interval '9 days', now() - interval '9 days', now() - interval '9 days' FROM generate_series(1, 5000)",
		"ANALYZE pawl.run, pawl.job, pawl.key, pawl.history, pawl.session",
		`INSERT INTO pawl.run (shard, id, workflow, definition, key, priority, tags, encoding, input, created_at, outcome, ended_at, result_job, result_token, output)
			SELECT 0, ID, CASE WHEN i % 4 = 0 THEN 'mail' ELSE 'order' END, CASE WHEN i % 4 = 0 THEN 2 ELSE 1 END, 'key' || i, 1, CASE WHEN i % 10 = 0 THEN '{eu}'::text[] WHEN i % (@n / 5) = 7 THEN '{rare}'::text[] ELSE '{}' END, 'json', '{"a":1}', AT,
			       CASE WHEN i % 500 = 3 THEN 'failed' WHEN i % 100 = 1 THEN 'cancelled' ELSE 'succeeded' END, AT,
			       CASE WHEN i % 500 <> 3 AND i % 100 <> 1 THEN i END, CASE WHEN i % 500 <> 3 AND i % 100 <> 1 THEN 1 END, CASE WHEN i % 500 <> 3 AND i % 100 <> 1 THEN '1'::bytea END
			  FROM generate_series(1, @n) i`,
		`INSERT INTO pawl.run (shard, id, workflow, definition, key, priority, encoding, input, created_at)
			SELECT 0, ID, 'order', 1, 'key' || i, 1, 'json', '{"a":1}', AT FROM generate_series(@n + 1, @n + @n / 10) i`,
		`INSERT INTO pawl.key SELECT 0, workflow, '', key, 1, id, '' FROM pawl.run`,
		// The dead, and those that live: of a thousand one runs, one fails, one's effect is unknown, 50 are for later.
		`INSERT INTO pawl.job (shard, run_id, route, state, due_at, code, node, token) SELECT 0, id, 1, 'dead', ended_at, 'CODE_' || substr(key, 4)::int / 500 % 7, 1, 1 FROM pawl.run WHERE outcome = 'failed'`,
		`INSERT INTO pawl.job (shard, run_id, route, state, due_at, code, node, token, failed_at, uncertain_at, owner, granted_at, expires_at, deadline_at)
			SELECT 0, ID, 1 + i % 8, CASE i % 1000 WHEN 1 THEN 'running' WHEN 3 THEN 'uncertain' ELSE 'pending' END,
			       CASE WHEN i % 1000 < 50 THEN now() + i * interval '1 ms' + interval '1 hour' ELSE now() - i * interval '1 ms' END,
			       CASE WHEN i % 1000 IN (2, 3) THEN 'TIMEOUT' END, 1, 1, CASE WHEN i % 1000 = 2 THEN now() END, CASE WHEN i % 1000 = 3 THEN now() END,
			       CASE WHEN i % 1000 = 1 THEN (SELECT id FROM pawl.session WHERE name = 'worker-1') END, CASE WHEN i % 1000 = 1 THEN now() END,
			       CASE WHEN i % 1000 = 1 THEN now() + interval '1 hour' END, CASE WHEN i % 1000 = 1 THEN now() + interval '1 hour' END
			  FROM generate_series(@n + 1, @n + @n / 10) i`,
		`INSERT INTO pawl.history (shard, run_id, job, token, ended_at, node, attempt, request, path, mode, from_state, to_state, event, writer, code, reason, encoding, output)
			SELECT 0, ID, i, 1, AT, 0, 1, 7, '', 'do', 'running', 'gone', 'completed', 'worker', CASE WHEN i % 500 = 3 THEN 'X' END, CASE WHEN i % 500 = 3 THEN 'because' END, 'json', '1' FROM generate_series(1, @n) i`,
	} {
		sql = strings.NewReplacer("@n", strconv.Itoa(ended), "ID", "(lpad(to_hex((extract(epoch FROM @d) * 1000)::bigint + i / 20), 12, '0') || '70008' || lpad(to_hex(i), 15, '0'))::uuid",
			"AT", "(@d + i / 20 * interval '1 ms')").Replace(sql)
		// From yesterday's beginning on, so that partitions are there.
		sql = strings.ReplaceAll(sql, "@d", "(date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - interval '1 day')")
		if _, err := pool.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%v: %.200s", err, sql)
		}
	}
	return pool
}
