package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// planLayout is a database full of jobs in known states.
type planLayout struct {
	*pgx.Conn
	n, running int
	day        string // the first twelve hex digits of the run ids
}

func newPlanLayout(t *testing.T, url string, n int) *planLayout {
	l := &planLayout{Conn: planConnect(t, url, "auto").Conn, n: n, running: n / 20}
	l.day = fmt.Sprintf("%012x", time.Now().UTC().Truncate(24*time.Hour).UnixMilli())
	for _, table := range []string{"job", "run", "cursor", "key", "session"} {
		l.exec(t, "ALTER TABLE pawl."+table+" SET (autovacuum_enabled = off)")
	}
	l.exec(t, `DO $$ DECLARE p text; BEGIN
		FOR p IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'pawl.history'::regclass LOOP
			EXECUTE 'ALTER TABLE ' || p || ' SET (autovacuum_enabled = off)';
		END LOOP; END $$`)
	// Route 4 is one that nobody knows.
	l.exec(t, `INSERT INTO pawl.definition (workflow, hash, graph, queue, active_at) VALUES ('w', '', '{"steps": [{"name": "one"}]}', 'q', now());
		INSERT INTO pawl.route (definition, queue, priority) SELECT 1, 'q', p FROM generate_series(0, 3) p`)
	return l
}

func (l *planLayout) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := l.Exec(context.Background(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%v: %s", err, sql)
	}
}

// id is the run of job i, as fill makes it.
func (l *planLayout) id(i int) uuid.UUID {
	return uuid.MustParse(fmt.Sprintf("%s70008%015x", l.day, i))
}

// every gives a batch of jobs, spread over the table: rest is the remainder by
// twenty, and so the state; each hundredth of the table has one.
func (l *planLayout) every(rest int) (jobs []int64, runs []uuid.UUID) {
	for i := rest; len(jobs) < planBatch; i += l.n / planBatch {
		jobs = append(jobs, int64(max(i, 20)))
		runs = append(runs, l.id(max(i, 20)))
	}
	return jobs, runs
}

// fill makes n jobs. By their number's remainder by 20: 0 is running, 1
// uncertain, 2 dead, 4 to 11 due, 12 to 19 and 3 pending for later. In each
// hundredth of the table the first of a kind is special: its lease has expired,
// its question is due, its run is being cancelled, it is on the rare route 2, its
// run has a tag. The fifth of each twenty is on route 4.
func (l *planLayout) fill(t *testing.T, n int) {
	each := max(n/planBatch/20*20, 20) // by twenty, so that what is special is of one state
	sql := strings.NewReplacer("@n", fmt.Sprint(n), "@each", fmt.Sprint(each), "@owner", planOwner.String(), "@day", l.day).Replace(`
		INSERT INTO pawl.session SELECT gen_random_uuid(), 'x', '{1,2}', '{0,0}', now(), now() + interval '1 hour', now() FROM generate_series(1, @n / 100);
		INSERT INTO pawl.session VALUES ('@owner', 'x', '{1,2}', '{0,0}', now(), now() + interval '1 hour', NULL);
		INSERT INTO pawl.run (shard, id, workflow, definition, priority, encoding, input, created_at, key, tags, cancelling, outcome, ended_at)
		SELECT 0, ('@day' || '70008' || lpad(to_hex(i), 15, '0'))::uuid, 'w', 1, 1, 'json', '1', now(), CASE WHEN i % 10 = 1 THEN 'key' || i END,
		       CASE WHEN i % @each = 7 THEN '{rare}'::text[] ELSE '{}' END, i % @each = 3,
		       CASE WHEN i % 20 = 2 THEN 'failed' END, CASE WHEN i % 20 = 2 THEN now() END
		  FROM generate_series(1, @n) i;
		INSERT INTO pawl.job (id, shard, run_id, token, route, state, cursor_seq, due_at, owner, granted_at, expires_at, deadline_at, uncertain_at)
		OVERRIDING SYSTEM VALUE
		SELECT i, 0, ('@day' || '70008' || lpad(to_hex(i), 15, '0'))::uuid, 1, CASE WHEN i % @each = 4 THEN 2 WHEN i % 20 = 5 THEN 4 ELSE 1 END,
		       CASE i % 20 WHEN 0 THEN 'running' WHEN 1 THEN 'uncertain' WHEN 2 THEN 'dead' ELSE 'pending' END, CASE WHEN i % 20 = 0 THEN 1 ELSE 0 END,
		       CASE WHEN i % 20 BETWEEN 4 AND 11 OR i % @each = 1 THEN now() - i * interval '1 ms' ELSE now() + interval '1 hour' + i * interval '1 ms' END,
		       CASE WHEN i % 20 = 0 THEN '@owner'::uuid END, CASE WHEN i % 20 = 0 THEN now() - interval '1 hour' END,
		       CASE WHEN i % @each = 0 THEN now() - interval '1 s' WHEN i % 20 = 0 THEN now() + interval '1 hour' END,
		       CASE WHEN i % 20 = 0 THEN now() + interval '2 hours' END, CASE WHEN i % 20 = 1 THEN now() END
		  FROM generate_series(1, @n) i;
		INSERT INTO pawl.cursor SELECT 0, i, 1, 'json', '1', 0, 0, now() FROM generate_series(20, @n, 20) i;
		INSERT INTO pawl.history (shard, run_id, job, token, ended_at, node, attempt, request, path, mode, from_state, to_state, event, writer, encoding, output)
		SELECT 0, ('@day' || '70008' || lpad(to_hex(i), 15, '0'))::uuid, i, 1, now(), 0, 1, 7, '', 'do', 'running', 'dead', 'completed', 'worker', 'json', '1'
		  FROM generate_series(2, @n, 4) i;
		INSERT INTO pawl.key SELECT 0, 'w', '', 'key' || i, 1, ('@day' || '70008' || lpad(to_hex(i), 15, '0'))::uuid, '' FROM generate_series(1, @n, 10) i;
		SELECT setval(pg_get_serial_sequence('pawl.job', 'id'), @n)`)
	l.exec(t, sql)
}
