package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/pglocal"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
)

// Every statement of the hot path has to keep its plan whatever the planner
// believes of the tables: a batch update that took milliseconds took fifteen
// seconds with statistics of an emptied table. So a million jobs are laid
// out, and each statement is looked at with the statistics of an emptied table, with
// fresh ones, and with a plan cached while the table was empty, both custom and
// generic: no scan may visit more than four times the batch.

const (
	planBatch = 100
	planFloor = 4 * planBatch
)

var planOwner = uuid.MustParse("00000000-0000-4000-8000-00000000aaaa")

// planCase is a statement. In those that read all running rows (of which there
// are as many as there are slots) the job's scan may see them all.
type planCase struct {
	name    string
	running bool
	run     func(*db.Queries) error
}

func TestPlans(t *testing.T) {
	t.Run("installed", func(t *testing.T) {
		t.Parallel()
		testPlans(t, pgtest.Server(t), 1_000_000)
	})
	t.Run("18", func(t *testing.T) {
		bin := os.Getenv("PAWL_PG18_BIN")
		if bin == "" {
			t.Skip("PAWL_PG18_BIN does not name the programs of a PostgreSQL 18")
		}
		t.Parallel()
		s := pgtest.Own(t, pglocal.Options{Bin: bin})
		if s.Version < 18 {
			t.Fatalf("PAWL_PG18_BIN holds PostgreSQL %d", s.Version)
		}
		testPlans(t, s, 1_000_000)
	})
}

func testPlans(t *testing.T, s *pglocal.Server, n int) {
	if testing.Short() {
		n = 100_000
	}
	pgtest.SkipDoctor(t) // a layout of rows, not a history of work
	url := pgtest.DatabaseOn(t, s)
	l := newPlanLayout(t, url, n)
	cases := append(l.cases(), l.rest()...)

	l.fill(t, n/100)
	l.exec(t, "DELETE FROM pawl.job; DELETE FROM pawl.run; DELETE FROM pawl.cursor; DELETE FROM pawl.history; DELETE FROM pawl.key; DELETE FROM pawl.session")
	l.exec(t, "VACUUM (TRUNCATE OFF, ANALYZE) pawl.job, pawl.run, pawl.cursor, pawl.history, pawl.key, pawl.session")
	var pages, tuples int
	if err := l.QueryRow(context.Background(), "SELECT relpages, reltuples FROM pg_class WHERE oid = 'pawl.job'::regclass").Scan(&pages, &tuples); err != nil ||
		pages == 0 || tuples != 0 {
		t.Fatalf("the table should look emptied: %d pages, %d rows, %v", pages, tuples, err)
	}
	cached := planConnect(t, url, "force_generic_plan")
	for _, c := range cases {
		cached.explain(t, c.run)
	}
	l.fill(t, n)

	look := func(state string, c *planConn) {
		for _, k := range cases {
			planCheck(t, state+"/"+k.name, c.explain(t, k.run), l.limits(k))
		}
	}
	look("cached on an empty table", cached)
	both := func(state string) {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			look(state+"/"+mode, planConnect(t, url, mode))
			t.Run(state+"/"+mode+"/StartRuns", func(t *testing.T) { l.lookAtStart(t, url, mode) })
		}
	}
	both("statistics of an emptied table")
	l.exec(t, "ANALYZE pawl.job, pawl.run, pawl.cursor, pawl.history, pawl.key, pawl.session")
	both("fresh statistics")
}

// limits says how many rows a scan of a relation may visit.
func (l *planLayout) limits(c planCase) func(planNode) int {
	return func(n planNode) int {
		if most, ok := planMost[c.name]; ok {
			return most
		}
		if c.running && (n.Relation == "job" || n.Index == "job_running" || n.Relation == "session") {
			return planFloor + l.running // and the session of each
		}
		return planFloor
	}
}

func planCheck(t *testing.T, name string, plan planNode, limit func(planNode) int) {
	t.Helper()
	plan.walk(func(n planNode) {
		switch {
		case strings.HasSuffix(n.Type, "Scan") && n.visited() > limit(n):
			t.Errorf("%s: %v visits %d rows", name, n, n.visited())
		case strings.Contains(n.Type, "Sort") && int(n.Rows*n.Loops) > limit(n):
			t.Errorf("%s: %v sorts %v rows", name, n, n.Rows*n.Loops)
		case n.Type == "Nested Loop" && int(n.Joined*n.Loops) > 4*planFloor: // a hidden square of the batch
			t.Errorf("%s: %v compares %v rows in vain", name, n, n.Joined*n.Loops)
		}
	})
}

// TestPlansAreByIndex: the engine forbids sequential scans to each of its
// statements, as these tests do.
func TestPlansAreByIndex(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	b := newCutBed(t, chainOf(1, &calls))
	var limited, statements int
	b.proxy.OnExecute(func(sql string) pgproxy.Action {
		switch {
		case strings.HasPrefix(sql, "-- name: "):
			if statements++; limited != statements {
				t.Errorf("no limits before %.40s", sql)
			}
		case strings.Contains(sql, "set_config('enable_seqscan', 'off', true), pg_catalog.set_config('jit', 'off', true)"):
			limited++
		}
		return pgproxy.Pass
	})
	r, err := engine.Start(context.Background(), b.e, chain, 0, engine.Silently())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.e.Get(context.Background(), r.ID); err != nil {
		t.Fatal(err)
	}
	b.proxy.OnExecute(nil)
	if statements < 3 {
		t.Errorf("%d statements were seen", statements)
	}
}

func (l *planLayout) cases() []planCase {
	ctx := context.Background()
	all := func(v string) []string { return planFill(v) }
	held, heldRuns := l.every(20)
	_, deadRuns := l.every(2)
	heldTokens, none := planFill(int64(1)), planFill[[]byte](nil)
	transition := func(to, more string) func(*db.Queries) error {
		p := db.TransitionParams{Ids: held, Tokens: heldTokens, Requests: planFill(int64(7)), ToStates: all(to), Nodes: planFill(int32(1)), Refs: all("0:1:1"),
			Outputs: planFill([]byte("1")), Results: none, More: all(more), LeaseMs: 60000, RuntimeMs: 900000, Owner: planOwner, Encoding: "json"}
		return func(q *db.Queries) error { _, err := q.Transition(ctx, p); return err }
	}
	return []planCase{
		{"Claim", false, func(q *db.Queries) error {
			_, err := q.Claim(ctx, db.ClaimParams{Routes: []int32{3, 2, 1}, Floors: []int32{0, 0, 0}, Most: planBatch, Owner: planOwner, LeaseMs: 60000, RuntimeMs: 900000})
			return err
		}},
		{"Transition: hand-over", false, transition("running", "")},
		{"Transition: retry", false, transition("pending", `{"event": "retried"}`)},
		{"Transition: success", false, transition("gone", "")},
		{"Transition: dead", false, transition("dead", `{"event": "dead"}`)},
		{"Begin", false, func(q *db.Queries) error {
			_, err := q.Begin(ctx, db.BeginParams{Ids: held, Tokens: heldTokens, LeaseMs: planFill(int64(60000)), RuntimeMs: planFill(int64(9000000)), Begun: planFill(true),
				AtExpiry: all("ask"), EffectKeys: planFill([]byte("k")), EffectHashes: planFill([]byte("h")), Owner: planOwner})
			return err
		}},
		{"Renew", false, func(q *db.Queries) error {
			_, err := q.Renew(ctx, db.RenewParams{Ids: held, Tokens: heldTokens, LeaseMs: planFill(int64(60000)), Owner: planOwner})
			return err
		}},
		{"Recover", true, func(q *db.Queries) error {
			_, err := q.Recover(ctx, db.RecoverParams{Most: planBatch, Budget: 5, BaseMs: 1000, Jitter: 0.5, Request: 7})
			return err
		}},
		{"AskDue", false, func(q *db.Queries) error {
			_, err := q.AskDue(ctx, db.AskDueParams{Most: planBatch, Request: 7})
			return err
		}},
		{"CloseCancelled", false, func(q *db.Queries) error {
			_, err := q.CloseCancelled(ctx, db.CloseCancelledParams{Most: planBatch, Request: 7})
			return err
		}},
		{"CloseCancelled: one", false, func(q *db.Queries) error {
			_, err := q.CloseCancelled(ctx, db.CloseCancelledParams{OnlyRun: l.id(3), Most: planBatch, Request: 7})
			return err
		}},
		{"LeasedTo", true, func(q *db.Queries) error {
			_, err := q.LeasedTo(ctx, db.LeasedToParams{Owner: uuid.New()})
			return err
		}},
		{"CloseLapsed", false, func(q *db.Queries) error { _, err := q.CloseLapsed(ctx); return err }},
		{"SaveCursor", false, func(q *db.Queries) error {
			_, err := q.SaveCursor(ctx, db.SaveCursorParams{ID: held[7], LeaseMs: 60000, Owner: planOwner, Token: 1, Seq: 1, Encoding: "json", Value: []byte("2")})
			return err
		}},
		{"SaveProgress", false, func(q *db.Queries) error {
			return q.SaveProgress(ctx, db.SaveProgressParams{Job: held[7], Owner: planOwner, Token: 1, Encoding: "json"})
		}},
		{"ReadCursor", false, func(q *db.Queries) error {
			_, err := q.ReadCursor(ctx, db.ReadCursorParams{Job: held[7]})
			return err
		}},
		{"ReadJob", false, func(q *db.Queries) error { _, err := q.ReadJob(ctx, db.ReadJobParams{ID: held[7]}); return err }},
		{"LockJob", false, func(q *db.Queries) error { _, err := q.LockJob(ctx, db.LockJobParams{ID: held[7]}); return err }},
		{"Written", false, func(q *db.Queries) error {
			_, err := q.Written(ctx, db.WrittenParams{RunID: l.id(2), Job: 2, Token: 1})
			return err
		}},
		{"Outputs", false, func(q *db.Queries) error {
			_, err := q.Outputs(ctx, db.OutputsParams{Runs: heldRuns, Jobs: held, Tokens: heldTokens})
			return err
		}},
		{"Outcomes", false, func(q *db.Queries) error {
			_, err := q.Outcomes(ctx, db.OutcomesParams{Ids: deadRuns})
			return err
		}},
		{"Pulse", true, func(q *db.Queries) error {
			_, err := q.Pulse(ctx, db.PulseParams{TtlMs: 15000, Routes: []int32{1, 2, 3}, Floors: []int32{0, 0, 0}, Owner: planOwner})
			return err
		}},
		{"Cancel", false, func(q *db.Queries) error {
			_, err := q.Cancel(ctx, db.CancelParams{Actor: "a", Reason: "r", ID: l.id(5)})
			return err
		}},
		{"LockJobsOfRun", false, func(q *db.Queries) error {
			_, err := q.LockJobsOfRun(ctx, db.LockJobsOfRunParams{RunID: l.id(5)})
			return err
		}},
		{"ReplayJob", false, func(q *db.Queries) error {
			_, err := q.ReplayJob(ctx, db.ReplayJobParams{ID: 2, Token: 1, Request: 7, Actor: "a", Reason: "r"})
			return err
		}},
		{"ResolveJob", false, func(q *db.Queries) error {
			_, err := q.ResolveJob(ctx, db.ResolveJobParams{ID: 21, Token: 1, Request: 7, Actor: "a", Reason: "r", Happened: true, Output: []byte("1"), Encoding: "json"})
			return err
		}},
		{"JobsOfRun", false, func(q *db.Queries) error {
			_, err := q.JobsOfRun(ctx, db.JobsOfRunParams{RunID: l.id(5)})
			return err
		}},
		{"FindKey", false, func(q *db.Queries) error {
			_, err := q.FindKey(ctx, db.FindKeyParams{Workflow: "w", Key: "key11"})
			return err
		}},
	}
}

func planFill[T any](v T) []T {
	vs := make([]T, planBatch)
	for i := range vs {
		vs[i] = v
	}
	return vs
}

// lookAtStart looks at the statements inside the function that starts runs, as
// far as auto_explain, which not every server has, shows them.
func (l *planLayout) lookAtStart(t *testing.T, url, mode string) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	var plans []string
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { plans = append(plans, n.Message) }
	ctx := context.Background()
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	if _, err := c.Exec(ctx, "LOAD 'auto_explain'"); err != nil {
		t.Skipf("the plans inside StartRuns are not looked at: this server has no auto_explain: %v", err)
	}
	tx, err := c.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	q := db.New(tx)
	id, err := q.Register(ctx, db.RegisterParams{Workflow: "w", Hash: []byte("h"), Graph: []byte("{}"), Queue: "q"})
	if err == nil {
		err = errors.Join(q.MakeRoutes(ctx, db.MakeRoutesParams{Definition: id, Queues: []string{"q"}}), q.Activate(ctx, db.ActivateParams{ID: id, Queue: "q", Settings: []byte("{}")}))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []string{"enable_seqscan = off", "plan_cache_mode = " + mode, "auto_explain.log_min_duration = 0", "auto_explain.log_analyze = on", "auto_explain.log_nested_statements = on",
		"auto_explain.log_format = json", "auto_explain.log_level = notice", "client_min_messages = notice"} {
		if _, err := tx.Exec(ctx, "SET LOCAL "+set); err != nil {
			t.Fatal(err)
		}
	}
	keys := planFill("")
	for i := range keys { // half of them exist
		keys[i] = fmt.Sprint("key", 1+i*l.n/planBatch)
		if i%2 == 0 {
			keys[i] = fmt.Sprint("new", i)
		}
	}
	rows, err := q.StartRuns(ctx, db.StartRunsParams{Workflow: "w", Inputs: planFill([]byte("1")), Encoding: "json", Keys: keys, Tags: []string{}, Priority: 1, ReuseMs: 0})
	if err != nil || len(rows) != planBatch {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	seen := 0
	for _, p := range plans {
		_, text, ok := strings.Cut(p, "plan:")
		if !ok {
			continue
		}
		text = regexp.MustCompile(`(?s)^[^{]*`).ReplaceAllString(text, "")
		seen++
		planCheck(t, t.Name(), planParse(t, []byte("["+text+"]")), func(planNode) int { return planFloor })
	}
	if seen < 4 {
		t.Errorf("only %d plans were seen inside", seen)
	}
}
