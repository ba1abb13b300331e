package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// fenceBed is a database with a workflow of one step, whose statements a test
// runs itself in the place of workers.
type fenceBed struct {
	t      testing.TB
	pool   *pgxpool.Pool
	q      *db.Queries
	e      *engine.Engine
	routes []int32
}

var fenceFlow = steps.Declare[int, int]("fenced")

func newFenceBed(t testing.TB) *fenceBed {
	t.Helper()
	b := &fenceBed{t: t, pool: pgtest.Pool(t)}
	b.q = db.New(b.pool)
	add := func(_ context.Context, n int) (int, error) { return n + 1, nil }
	var err error
	b.e, err = engine.New(context.Background(), b.pool, engine.Config{NoListen: true, Workflows: []steps.Definition{
		fenceFlow.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
			return steps.New("only", add).Do(f, in)
		})}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.pool.QueryRow(context.Background(), "SELECT array_agg(id ORDER BY id) FROM pawl.route").Scan(&b.routes); err != nil {
		t.Fatal(err)
	}
	return b
}

// owner opens a session.
func (b *fenceBed) owner() uuid.UUID {
	b.t.Helper()
	id := uuid.New()
	if _, err := b.q.OpenSession(context.Background(), db.OpenSessionParams{ID: id, Name: "fence", Routes: append([]int32{}, b.routes...), Floors: make([]int32, len(b.routes)), TtlMs: 3_600_000}); err != nil {
		b.t.Fatal(err)
	}
	return id
}

// start starts n runs.
func (b *fenceBed) start(n int) []engine.Run[int] {
	b.t.Helper()
	runs, err := engine.StartMany(context.Background(), b.e, fenceFlow, make([]int, n))
	if err != nil {
		b.t.Fatal(err)
	}
	return runs
}

// claim leases all that is due, in the order of the jobs' numbers.
func (b *fenceBed) claim(owner uuid.UUID) []db.ClaimRow {
	b.t.Helper()
	rows, err := b.q.Claim(context.Background(), db.ClaimParams{Routes: b.routes, Floors: make([]int32, len(b.routes)), Most: 1000, Owner: owner, LeaseMs: 600_000, RuntimeMs: 1_200_000})
	if err != nil {
		b.t.Fatal(err)
	}
	return rows
}

// one is a new run's only job, leased to the owner.
func (b *fenceBed) one(owner uuid.UUID) db.ClaimRow {
	b.t.Helper()
	run := b.start(1)[0]
	for _, r := range b.claim(owner) { // others may have become due again
		if r.RunID.String() == run.ID {
			return r
		}
	}
	b.t.Fatal("the job was not claimed")
	return db.ClaimRow{}
}

func (b *fenceBed) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(context.Background(), sql, args...); err != nil {
		b.t.Fatalf("%v: %s", err, sql)
	}
}

// rows is every row that is kept of a run, as text.
func (b *fenceBed) rows(run uuid.UUID) string {
	b.t.Helper()
	var parts []string
	for _, q := range []string{
		"SELECT 'run ' || x::text FROM pawl.run x WHERE x.id = $1",
		"SELECT 'job ' || x::text FROM pawl.job x WHERE x.run_id = $1 ORDER BY x.id",
		"SELECT 'history ' || x::text FROM pawl.history x WHERE x.run_id = $1 ORDER BY x.job, x.token",
		"SELECT 'evidence ' || x::text FROM pawl.evidence x WHERE x.run_id = $1 ORDER BY x.id",
		"SELECT 'cursor ' || x::text FROM pawl.cursor x JOIN pawl.job j ON j.shard = x.shard AND j.id = x.job WHERE j.run_id = $1",
	} {
		rows, err := b.pool.Query(context.Background(), q, run)
		if err != nil {
			b.t.Fatal(err)
		}
		for rows.Next() {
			var s string
			if err := rows.Scan(&s); err != nil {
				b.t.Fatal(err)
			}
			parts = append(parts, s)
		}
		if err := rows.Err(); err != nil {
			b.t.Fatal(err)
		}
	}
	return strings.Join(parts, "\n")
}

// fenceEnd is how an attempt ends, by the name of the verb.
type fenceEnd struct {
	verb, to, event, mode string
	advance               bool
	class, code           string
	output                []byte
	delay                 int64
}

var fenceEnds = []fenceEnd{
	{verb: "complete, hand over", to: "running", event: "completed", advance: true, output: []byte("1")},
	{verb: "complete, for others", to: "pending", event: "completed", advance: true, output: []byte("1")},
	{verb: "complete, the last", to: "gone", event: "completed", advance: true, output: []byte("1")},
	{verb: "fail", to: "dead", event: "dead", class: "permanent", code: "NO"},
	{verb: "retry", to: "pending", event: "retried", class: "transient", code: "NO"},
	{verb: "snooze", to: "pending", event: "snoozed", class: "snooze", delay: 3_600_000},
	{verb: "uncertain", to: "uncertain", event: "uncertain", class: "uncertain", code: "NO", delay: -1},
	{verb: "hand back", to: "pending", event: "handed_back"},
}

// fenceAnswers is how a question of the reconciler ends.
var fenceAnswers = []fenceEnd{
	{verb: "settled", to: "running", event: "settled", advance: true, output: []byte("1")},
	{verb: "still unknown", to: "uncertain", event: "unknown", delay: -1},
	{verb: "never happened", to: "pending", event: "repeat", class: "transient"},
	{verb: "question handed back", to: "pending", event: "handed_back", mode: "ask"},
}

// transition is one attempt's end each for the jobs, all in one statement.
func (f fenceEnd) transition(owner uuid.UUID, jobs ...db.ClaimRow) db.TransitionParams {
	p := db.TransitionParams{Owner: owner, Encoding: "json", LeaseMs: 600_000, RuntimeMs: 1_200_000}
	for _, j := range jobs {
		node, refs := j.Node, j.Refs
		if f.advance {
			node, refs = j.Node+1, strings.TrimSpace(fmt.Sprintf("%s %d:%d:%d", j.Refs, j.Node, j.ID, j.Token+1))
		}
		more := map[string]any{"event": f.event, "advance": f.advance, "delay_ms": f.delay, "attempt": 1}
		for name, v := range map[string]string{"mode": f.mode, "class": f.class, "code": f.code} {
			if v != "" {
				more[name] = v
			}
		}
		text, err := json.Marshal(more)
		if err != nil {
			panic(err)
		}
		p.Ids, p.Tokens, p.Requests, p.ToStates = append(p.Ids, j.ID), append(p.Tokens, j.Token), append(p.Requests, rand.Int64()), append(p.ToStates, f.to)
		p.Nodes, p.Refs, p.Outputs, p.Results = append(p.Nodes, node), append(p.Refs, refs), append(p.Outputs, f.output), append(p.Results, nil)
		p.More = append(p.More, string(text))
	}
	return p
}

// fenceVerb tells whether the write took place.
type fenceVerb func(q *db.Queries, owner uuid.UUID, j db.ClaimRow) (bool, error)

func (f fenceEnd) do(q *db.Queries, owner uuid.UUID, j db.ClaimRow) (bool, error) {
	rows, err := q.Transition(context.Background(), f.transition(owner, j))
	if err != nil {
		return false, err
	}
	if len(rows) != 1 {
		return false, errors.New("no answer")
	}
	return *rows[0].Verdict == "done", nil
}
