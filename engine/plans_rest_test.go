package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/pawlworks/pawl/internal/db"
)

// planMost is for statements that may see more rows than the others.
var planMost = map[string]int{
	"StrandedRoutes": 4 * 1000, // a thousand jobs of each route
}

// rest is what is not of the hot path, and must not depend on luck either.
func (l *planLayout) rest() []planCase {
	ctx := context.Background()
	all := make([]uuid.UUID, planBatch)
	for i := range all {
		all[i] = l.id(1 + i*l.n/planBatch)
	}
	key, workflow := "key11", "w"
	return []planCase{
		{"QueueGauges", false, func(q *db.Queries) error {
			_, err := q.QueueGauges(ctx, db.QueueGaugesParams{Shards: []int16{0}, Most: planBatch})
			return err
		}},
		{"JobGauges", false, func(q *db.Queries) error {
			_, err := q.JobGauges(ctx, db.JobGaugesParams{Shards: []int16{0}, Most: planBatch})
			return err
		}},
		{"Existing", false, func(q *db.Queries) error { _, err := q.Existing(ctx, db.ExistingParams{Ids: all}); return err }},
		{"RunExists", false, func(q *db.Queries) error { _, err := q.RunExists(ctx, db.RunExistsParams{ID: l.id(5)}); return err }},
		{"RunState", false, func(q *db.Queries) error { _, err := q.RunState(ctx, db.RunStateParams{ID: l.id(5)}); return err }},
		{"LockRun", false, func(q *db.Queries) error { _, err := q.LockRun(ctx, db.LockRunParams{ID: l.id(5)}); return err }},
		{"GetRun", false, func(q *db.Queries) error { _, err := q.GetRun(ctx, db.GetRunParams{ID: l.id(5)}); return err }},
		{"HistoryOfRun", false, func(q *db.Queries) error {
			_, err := q.HistoryOfRun(ctx, db.HistoryOfRunParams{RunID: l.id(2), Most: 1000})
			return err
		}},
		{"EvidenceOfRun", false, func(q *db.Queries) error {
			_, err := q.EvidenceOfRun(ctx, db.EvidenceOfRunParams{RunID: l.id(2)})
			return err
		}},
		{"LateOutput", false, func(q *db.Queries) error {
			_, err := q.LateOutput(ctx, db.LateOutputParams{RunID: l.id(2), Job: 2})
			return err
		}},
		{"KeepEvidence", false, func(q *db.Queries) error {
			return q.KeepEvidence(ctx, db.KeepEvidenceParams{RunID: l.id(2), Job: 2, Token: 1, Owner: planOwner, Encoding: "json", Output: []byte("1")})
		}},
		{"OutputOfNode", false, func(q *db.Queries) error {
			_, err := q.OutputOfNode(ctx, db.OutputOfNodeParams{RunID: l.id(2)})
			return err
		}},
		{"LastFailure", false, func(q *db.Queries) error {
			_, err := q.LastFailure(ctx, db.LastFailureParams{RunID: l.id(2)})
			return err
		}},
		{"NewestOfKey", false, func(q *db.Queries) error {
			_, err := q.NewestOfKey(ctx, db.NewestOfKeyParams{ID: l.id(11)})
			return err
		}},
		{"ReleaseKey", false, func(q *db.Queries) error {
			_, err := q.ReleaseKey(ctx, db.ReleaseKeyParams{Actor: "a", Workflow: &workflow, Key: &key, Reason: "r"})
			return err
		}},
		{"Lapsed", true, func(q *db.Queries) error { _, err := q.Lapsed(ctx, 0); return err }},
		{"StrandedRoutes", false, func(q *db.Queries) error { _, err := q.StrandedRoutes(ctx, 0); return err }},
		{"OpenSession", false, func(q *db.Queries) error {
			_, err := q.OpenSession(ctx, db.OpenSessionParams{ID: uuid.New(), Name: "x", Routes: []int32{1}, Floors: []int32{0}, TtlMs: 1000})
			return err
		}},
		{"LastMoved", false, func(q *db.Queries) error { _, err := q.LastMoved(ctx, db.LastMovedParams{ID: l.id(2)}); return err }},
		{"Retrace", false, func(q *db.Queries) error {
			_, err := q.Retrace(ctx, db.RetraceParams{ID: l.id(2), Traceparent: "x"})
			return err
		}},
		{"CloseSession", false, func(q *db.Queries) error { return q.CloseSession(ctx, planOwner) }},
	}
}

// planExempt are the statements whose plans nobody has to look at.
var planExempt = map[string]string{
	"Register":          "a row of a small table, by its unique key",
	"Activate":          "a row of a small table, by its primary key",
	"MakeRoutes":        "a few rows of a small table, once a start of a process",
	"Definitions":       "a small table, once a start of a process",
	"DefinitionByID":    "a row of a small table, by its primary key",
	"Routes":            "a small table, once a start of a process",
	"DefinitionsToShow": "a small table, for people",
	"Shards":            "a table of one row",
	"Keeps":             "a table of one row",
	"Notify":            "reads no table",
	"MakePartitions":    "a function that reads the catalogue alone",
	"RetireRuns":        "a function, once an hour: its pages are shown to be pages in the tests of retention",
	"RetirePartition":   "a function, once an hour: it reads a whole partition by intent",
	"StartRuns":         "a function: lookAtStart looks at the statements in it",
	"Violations":        "reads everything, which is what it is for",
}

var planName = regexp.MustCompile(`(?m)^-- name: (\w+) :`)

// TestPlansOfAll: a statement is explained, or somebody has said why not.
func TestPlansOfAll(t *testing.T) {
	explained := map[string]bool{}
	l := &planLayout{n: 100_000, day: strings.Repeat("0", 12)}
	for _, c := range append(l.cases(), l.rest()...) {
		tape := &planTape{}
		_ = c.run(db.New(tape))
		name := planName.FindStringSubmatch(tape.sql)
		if label, _, _ := strings.Cut(c.name, ":"); name == nil || name[1] != label {
			t.Errorf("%q explains %.60q", c.name, tape.sql)
			continue
		}
		explained[name[1]] = true
	}
	files, err := filepath.Glob("../queries/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	there := map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains([]string{"list.sql", "show.sql", "status.sql", "tail.sql"}, filepath.Base(f)) {
			continue // for people: internal/view looks at their plans
		}
		for _, name := range planName.FindAllStringSubmatch(string(text), -1) {
			there[name[1]] = true
			if _, exempt := planExempt[name[1]]; exempt == explained[name[1]] {
				t.Errorf("%s: %s is to be explained in rest, or exempt with a reason: one of the two", filepath.Base(f), name[1])
			}
		}
	}
	for name := range planExempt {
		if !there[name] {
			t.Errorf("%s is exempt and there is no such statement", name)
		}
	}
	if len(there) < 40 {
		t.Errorf("only %d statements were found", len(there))
	}
}
