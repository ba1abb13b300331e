package view

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// explainer is a way to a database on which each statement is run a second time
// under EXPLAIN, prepared and planned as the first.
type explainer struct {
	t     testing.TB
	plans map[string]explained // by the statement's name; the one that visited most
}

type explained struct {
	text string
	plan planNode
}

type planNode struct {
	Type     string     `json:"Node Type"`
	Relation string     `json:"Relation Name"`
	Index    string     `json:"Index Name"`
	Rows     float64    `json:"Actual Rows"`
	Loops    float64    `json:"Actual Loops"`
	Filtered float64    `json:"Rows Removed by Filter"`
	Recheck  float64    `json:"Rows Removed by Index Recheck"`
	Plans    []planNode `json:"Plans"`
}

func (n planNode) visited() int { return int(math.Round((n.Rows + n.Filtered + n.Recheck) * n.Loops)) }

func (n planNode) walk(fn func(planNode)) {
	fn(n)
	for _, c := range n.Plans {
		c.walk(fn)
	}
}

func (n planNode) most() (most int) {
	n.walk(func(n planNode) {
		if strings.HasSuffix(n.Type, "Scan") {
			most = max(most, n.visited())
		}
	})
	return most
}

// atMost fails for each statement that reads a growing table as a whole, or in
// which a scan visits more rows; those named may visit more.
func (x *explainer) atMost(t *testing.T, rows int, more ...string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(x.plans)) {
		e := x.plans[name]
		t.Logf("%-17s visits %d rows at most", name, e.plan.most())
		e.plan.walk(func(n planNode) {
			grows := n.Relation == "run" || n.Relation == "job" || strings.HasPrefix(n.Relation, "history") || n.Relation == "key"
			if n.Type == "Seq Scan" && grows {
				t.Errorf("%s reads all of %s", name, n.Relation)
			}
			if (n.Relation != "" || n.Index != "") && n.visited() > rows && !slices.Contains(more, name) {
				t.Errorf("%s: %s %s %s visits %d rows", name, n.Type, n.Relation, n.Index, n.visited())
			}
		})
	}
}

func (x *explainer) on(b Beginner) Beginner {
	x.plans = map[string]explained{}
	return explaining{b, x}
}

type explaining struct {
	Beginner
	x *explainer
}

func (e explaining) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	tx, err := e.Beginner.BeginTx(ctx, o)
	return explainedTx{tx, e.x}, err
}

type explainedTx struct {
	pgx.Tx
	x *explainer
}

func (tx explainedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	tx.explain(ctx, sql, args)
	return tx.Tx.Query(ctx, sql, args...)
}

func (tx explainedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	tx.explain(ctx, sql, args)
	return tx.Tx.QueryRow(ctx, sql, args...)
}

func (tx explainedTx) explain(ctx context.Context, sql string, args []any) {
	t := tx.x.t
	t.Helper()
	rest, ok := strings.CutPrefix(sql, "-- name: ")
	if !ok {
		return
	}
	name := strings.Fields(rest)[0]
	c := tx.Conn()
	d, err := c.Prepare(ctx, "explain_"+strings.ToLower(name), sql)
	if err != nil {
		t.Fatalf("%v in\n%s", err, sql)
	}
	var values []string
	for i, a := range args {
		b, err := c.TypeMap().Encode(d.ParamOIDs[i], pgx.TextFormatCode, a, []byte{})
		if err != nil {
			t.Fatal(err)
		}
		value := "NULL"
		if b != nil {
			value = "'" + strings.ReplaceAll(string(b), "'", "''") + "'"
		}
		values = append(values, value)
	}
	text := "EXECUTE explain_" + strings.ToLower(name)
	if len(values) > 0 {
		text += "(" + strings.Join(values, ", ") + ")"
	}
	var out []byte
	if err := tx.Tx.QueryRow(ctx, "EXPLAIN (ANALYZE, FORMAT JSON) "+text, pgx.QueryExecModeSimpleProtocol).Scan(&out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal(out, &plans); err != nil || len(plans) != 1 {
		t.Fatal(err, string(out))
	}
	if before, ok := tx.x.plans[name]; !ok || plans[0].Plan.most() > before.plan.most() {
		tx.x.plans[name] = explained{string(out), plans[0].Plan}
	}
}
