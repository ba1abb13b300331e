package engine_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// doctorWard is a database with healthy runs in all the states that matter:
// succeeded, failed, half-way with a cursor, due, running.
func doctorWard(t *testing.T) (*pgxpool.Pool, *engine.Engine, pgx.NamedArgs) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	pool := pgtest.Pool(t)
	flow := steps.Declare[int, int]("ward")
	e, err := engine.New(ctx, pool, engine.Config{Workflows: []steps.Definition{flow.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
		first := steps.New("first", func(_ context.Context, n int) (int, error) { return n, nil }).Do(f, in)
		return steps.NewLong("second", func(ctx context.Context, n int, cur *steps.Cursor[int]) (int, error) {
			if err := cur.Commit(ctx, 1); err != nil {
				return 0, err
			}
			switch n {
			case 1:
				return n, steps.Permanent("NO", nil)
			case 2:
				return n, steps.Snooze(time.Hour)
			}
			return n, nil
		}).Do(f, first)
	})}})
	if err != nil {
		t.Fatal(err)
	}
	runs, err := engine.StartMany(ctx, e, flow, []int{0, 1, 2}, engine.Keys([]string{"a", "b", "c"}))
	if err != nil {
		t.Fatal(err)
	}
	stop := work(t, e)
	if _, err := runs[0].Wait(ctx); err != nil {
		t.Fatal(err)
	}
	var failed *engine.FailedError
	if _, err := runs[1].Wait(ctx); !errors.As(err, &failed) {
		t.Fatal(err)
	}
	effUntil(t, "the third run snoozes", func() bool {
		info, err := e.Get(ctx, runs[2].ID)
		return err == nil && len(info.History) == 2
	})
	stop()
	q, owner := db.New(pool), uuid.New()
	var routes []int32
	if err := pool.QueryRow(ctx, "SELECT array_agg(id) FROM pawl.route").Scan(&routes); err != nil {
		t.Fatal(err)
	}
	if _, err := q.OpenSession(ctx, db.OpenSessionParams{ID: owner, Routes: routes, Floors: make([]int32, len(routes)), TtlMs: 3_600_000}); err != nil {
		t.Fatal(err)
	}
	running, err := engine.Start(ctx, e, flow, 3)
	if err != nil {
		t.Fatal(err)
	}
	if rows, err := q.Claim(ctx, db.ClaimParams{Routes: routes, Floors: make([]int32, len(routes)), Most: 10, Owner: owner, LeaseMs: 600_000, RuntimeMs: 600_000}); err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	due, err := engine.Start(ctx, e, flow, 4)
	if err != nil {
		t.Fatal(err)
	}
	return pool, e, pgx.NamedArgs{"succeeded": runs[0].ID, "failed": runs[1].ID, "halfway": runs[2].ID, "running": running.ID, "due": due.ID}
}

// doctorCases plants each kind of what can't be.
var doctorCases = []struct{ kind, plant string }{
	{"run-without-job", "DELETE FROM pawl.job WHERE run_id = @due"},
	{"job-without-run", "DELETE FROM pawl.run WHERE id = @due"},
	{"job-of-ended-run", "UPDATE pawl.run SET outcome = 'cancelled', ended_at = now() WHERE id = @due"},
	{"job-of-ended-run", "UPDATE pawl.job SET state = 'pending' WHERE run_id = @failed"},
	{"failed-without-dead-job", "DELETE FROM pawl.job WHERE run_id = @failed"},
	{"dead-not-failed", "UPDATE pawl.run SET outcome = NULL, ended_at = NULL WHERE id = @failed"},
	{"two-positions", "INSERT INTO pawl.job (shard, run_id, route, due_at) SELECT shard, run_id, route, due_at FROM pawl.job WHERE run_id = @due"},
	{"token-behind", "UPDATE pawl.job SET token = 1 WHERE run_id = @halfway"},
	{"transition-unrecorded", "UPDATE pawl.job SET token = token + 1 WHERE run_id = @due"},
	{"transition-unrecorded", "UPDATE pawl.job SET token = token + 1 WHERE run_id = @running"},
	{"history-gap", "UPDATE pawl.history SET token = token + 2 WHERE run_id = @succeeded AND node = 1"},
	{"step-done-twice", `INSERT INTO pawl.history (shard, run_id, job, token, ended_at, node, attempt, request, path, mode, from_state, to_state, event, writer)
		SELECT shard, run_id, job, token + 1, ended_at, node, attempt, request, path, mode, from_state, to_state, event, writer FROM pawl.history WHERE run_id = @succeeded AND node = 1`},
	{"step-skipped", "DELETE FROM pawl.history WHERE run_id = @succeeded AND node = 0"},
	{"step-skipped", `WITH three AS (UPDATE pawl.definition SET graph = convert_to(jsonb_insert(convert_from(graph, 'UTF8')::jsonb, '{steps,1}', '{}')::text, 'UTF8'))
		UPDATE pawl.history SET node = 2 WHERE run_id = @succeeded AND node = 1`},
	{"wrong-place", "UPDATE pawl.job SET node = 1 WHERE run_id = @due"},
	{"wrong-place", "UPDATE pawl.job SET node = 0 WHERE run_id = @halfway"},
	{"succeeded-incomplete", "DELETE FROM pawl.history WHERE run_id = @succeeded AND node = 1"},
	{"result-missing", "UPDATE pawl.history SET output = NULL WHERE run_id = @succeeded AND node = 1"},
	{"value-missing", "UPDATE pawl.history SET output = NULL WHERE run_id = @halfway AND node = 0"},
	{"value-missing", "UPDATE pawl.job SET refs = refs || '9' WHERE run_id = @halfway"},
	{"cursor-astray", "UPDATE pawl.cursor SET seq = seq + 1 WHERE job = (SELECT id FROM pawl.job WHERE run_id = @halfway)"},
	{"cursor-astray", "INSERT INTO pawl.cursor (shard, job, seq, encoding, saved_at) VALUES (0, 4711, 0, 'json', now())"},
	{"cursor-lost", "DELETE FROM pawl.cursor WHERE job = (SELECT id FROM pawl.job WHERE run_id = @halfway)"},
	{"key-lost", "DELETE FROM pawl.key WHERE run_id = @halfway"},
	{"key-lost", "UPDATE pawl.key SET run_id = @due WHERE run_id = @succeeded"},
	{"key-lost", "UPDATE pawl.run SET generation = generation + 1 WHERE id = @succeeded"},
	{"owner-unknown", "UPDATE pawl.job SET owner = gen_random_uuid() WHERE run_id = @running"},
	{"route-unknown", "UPDATE pawl.job SET route = 4711 WHERE run_id = @due"},
	{"route-unknown", `WITH d AS (INSERT INTO pawl.definition (workflow, hash, graph, queue, active_at)
			SELECT 'another', hash, graph, queue, active_at FROM pawl.definition RETURNING id, queue),
		r AS (INSERT INTO pawl.route (definition, queue, priority) SELECT id, queue, 1 FROM d RETURNING id)
		UPDATE pawl.job SET route = (SELECT id FROM r) WHERE run_id = @due`},
	{"lease-not-taken-back", "UPDATE pawl.job SET expires_at = now() - interval '11 minutes' WHERE run_id = @running"},
	{"partitions-missing", `DO $$ BEGIN EXECUTE 'DROP TABLE pawl.history_' || to_char((pawl.now() AT TIME ZONE 'UTC')::date + 1, 'YYYYMMDD'); END $$`},
}

func TestDoctorFinds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool, e, runs := doctorWard(t)
	if vs, err := e.Doctor(ctx); err != nil || len(vs) != 0 {
		t.Fatalf("in a healthy database: %v, %v", vs, err)
	}
	for _, c := range doctorCases {
		tx, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		// Without parameters where it is no plain statement.
		var args []any
		if c.plant[:2] != "DO" {
			args = append(args, runs)
		}
		tag, err := tx.Exec(ctx, c.plant, args...)
		if err != nil || len(args) > 0 && tag.RowsAffected() == 0 {
			t.Fatalf("%s: %v, %v", c.kind, tag, err)
		}
		vs, err := db.New(tx).Violations(ctx)
		if err != nil || !slices.ContainsFunc(vs, func(v db.ViolationsRow) bool { return v.Kind == c.kind && v.What != "" }) {
			t.Errorf("%s was planted by %s and found are %v, %v", c.kind, c.plant, vs, err)
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDoctorCasesAreAll: a kind that is added to the query needs a case here.
func TestDoctorCasesAreAll(t *testing.T) {
	text, err := os.ReadFile("../queries/doctor.sql")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`SELECT '([a-z-]+)'(?: AS kind)?, format`).FindAllSubmatch(text, -1) {
		found[string(m[1])] = true
	}
	if len(found) < 20 {
		t.Errorf("only %d kinds were recognised in the query", len(found))
	}
	for _, c := range doctorCases {
		delete(found, c.kind)
	}
	for kind := range found {
		t.Errorf("no case plants %s", kind)
	}
}

// impossible are writes that the schema refuses, whoever makes them.
var impossible = []string{
	"UPDATE pawl.job SET owner = gen_random_uuid() WHERE run_id = @due",
	"UPDATE pawl.job SET owner = NULL WHERE run_id = @running",
	"UPDATE pawl.job SET expires_at = now() WHERE run_id = @due",
	"UPDATE pawl.job SET granted_at = now() WHERE run_id = @due",
	"UPDATE pawl.job SET deadline_at = now() WHERE run_id = @due",
	"UPDATE pawl.job SET expires_at = deadline_at + interval '1 s' WHERE run_id = @running",
	"UPDATE pawl.job SET state = 'uncertain' WHERE run_id = @due",
	"UPDATE pawl.job SET mode = 'ask' WHERE run_id = @due",
	"UPDATE pawl.job SET begun = true WHERE run_id = @due",
	"UPDATE pawl.job SET at_expiry = 'ask' WHERE run_id = @due",
	"UPDATE pawl.job SET effect_key = 'k' WHERE run_id = @due",
	"UPDATE pawl.job SET token = -1 WHERE run_id = @due",
	"UPDATE pawl.job SET state = 'elsewhere' WHERE run_id = @due",
	"UPDATE pawl.job SET mode = 'redo' WHERE run_id = @due",
	"UPDATE pawl.job SET at_expiry = 'forget' WHERE run_id = @running",
	"UPDATE pawl.run SET outcome = 'failed' WHERE id = @due",
	"UPDATE pawl.run SET outcome = 'lost', ended_at = now() WHERE id = @due",
	"UPDATE pawl.run SET outcome = 'failed', ended_at = now(), cancelling = true WHERE id = @due",
	"UPDATE pawl.run SET outcome = 'succeeded', ended_at = now() WHERE id = @due",
	"UPDATE pawl.run SET result_job = NULL WHERE id = @succeeded",
	"UPDATE pawl.run SET output = '1' WHERE id = @due",
	"UPDATE pawl.history SET event = 'guessed' WHERE run_id = @succeeded",
	"UPDATE pawl.history SET writer = 'nobody' WHERE run_id = @succeeded",
	"UPDATE pawl.definition SET workflow = ''",
	"UPDATE pawl.route SET priority = 4",
	"UPDATE pawl.meta SET shards = 0",
	"UPDATE pawl.meta SET one = false",
	"UPDATE pawl.meta SET keep = interval '1 hour'",
}

// TestImpossibleRows also tells when a CHECK of the schema has no case here.
func TestImpossibleRows(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool, _, runs := doctorWard(t)
	met := map[string]bool{}
	for _, sql := range impossible {
		var refused *pgconn.PgError
		var args []any
		if regexp.MustCompile(`@\w`).MatchString(sql) {
			args = append(args, runs)
		}
		_, err := pool.Exec(ctx, sql, args...)
		if !errors.As(err, &refused) || refused.Code != "23514" {
			t.Errorf("%s: %v", sql, err)
			continue
		}
		name := refused.TableName
		if len(name) > 8 && name[:8] == "history_" { // a partition's
			name = "history"
		}
		met[name+"."+refused.ConstraintName] = true
	}
	rows, err := pool.Query(ctx, `SELECT c.conrelid::regclass::text, c.conname FROM pg_constraint c
		WHERE c.contype = 'c' AND c.connamespace = 'pawl'::regnamespace AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.conrelid)`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var table, name string
		if err := rows.Scan(&table, &name); err != nil {
			t.Fatal(err)
		}
		if table = table[len("pawl."):]; !met[table+"."+name] {
			t.Errorf("no case meets %s of %s", name, table)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}
