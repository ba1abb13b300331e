package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pawlworks/pawl/internal/db"
)

// planTape is a DBTX that runs nothing: it takes down the text and the
// arguments of the statement that a method of db.Queries would run.
type planTape struct {
	sql  string
	args []any
}

var errTaped = errors.New("taken down")

func (p *planTape) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	p.sql, p.args = sql, args
	return pgconn.CommandTag{}, errTaped
}

func (p *planTape) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	p.sql, p.args = sql, args
	return nil, errTaped
}

func (p *planTape) QueryRow(_ context.Context, sql string, args ...any) pgx.Row {
	p.sql, p.args = sql, args
	return planNoRow{}
}

type planNoRow struct{}

func (planNoRow) Scan(...any) error { return errTaped }

// planNode is a node of EXPLAIN (ANALYZE, FORMAT JSON).
type planNode struct {
	Type     string     `json:"Node Type"`
	Relation string     `json:"Relation Name"`
	Index    string     `json:"Index Name"`
	CTE      string     `json:"CTE Name"`
	Subplan  string     `json:"Subplan Name"`
	Rows     float64    `json:"Actual Rows"`
	Loops    float64    `json:"Actual Loops"`
	Filtered float64    `json:"Rows Removed by Filter"`
	Joined   float64    `json:"Rows Removed by Join Filter"`
	Recheck  float64    `json:"Rows Removed by Index Recheck"`
	Plans    []planNode `json:"Plans"`
}

// visited is how many rows the node looked at, over all its loops.
func (n planNode) visited() int { return int(math.Round((n.Rows + n.Filtered + n.Recheck) * n.Loops)) }

func (n planNode) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", n.Type, n.Relation, n.Index, n.CTE))
}

// walk calls fn for the node and all below it.
func (n planNode) walk(fn func(planNode)) {
	fn(n)
	for _, c := range n.Plans {
		c.walk(fn)
	}
}

// planConn is a connection with one way of planning, on which statements are
// prepared as pgx prepares them and, as in the engine, sequential scans are off.
type planConn struct {
	*pgx.Conn
	texts map[string]string // prepared, with their names
	oids  map[string][]uint32
}

func planConnect(t *testing.T, url, mode string) *planConn {
	t.Helper()
	c, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	for _, set := range []string{"SET plan_cache_mode = " + mode, "SET jit = off", "SET enable_seqscan = off", "SET statement_timeout = '120s'"} {
		if _, err := c.Exec(context.Background(), set); err != nil {
			t.Fatal(err)
		}
	}
	return &planConn{c, map[string]string{}, map[string][]uint32{}}
}

// execute is the SQL text that executes what the tape holds, prepared here.
func (c *planConn) execute(t *testing.T, tape *planTape) string {
	t.Helper()
	name, ok := c.texts[tape.sql]
	if !ok {
		name = fmt.Sprint("p", len(c.texts))
		d, err := c.Prepare(context.Background(), name, tape.sql)
		if err != nil {
			t.Fatalf("%v in\n%s", err, tape.sql)
		}
		c.texts[tape.sql], c.oids[name] = name, d.ParamOIDs
	}
	if len(tape.args) == 0 {
		return "EXECUTE " + name
	}
	var args []string
	for i, a := range tape.args {
		b, err := c.TypeMap().Encode(c.oids[name][i], pgx.TextFormatCode, a, []byte{})
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			args = append(args, "NULL")
		} else {
			args = append(args, "'"+strings.ReplaceAll(string(b), "'", "''")+"'")
		}
	}
	return fmt.Sprintf("EXECUTE %s(%s)", name, strings.Join(args, ", "))
}

// explain runs the statement in a transaction that is rolled back and returns
// what its plan did.
func (c *planConn) explain(t *testing.T, run func(*db.Queries) error) planNode {
	t.Helper()
	tape := &planTape{}
	if err := run(db.New(tape)); !errors.Is(err, errTaped) {
		t.Fatal(err)
	}
	text := c.execute(t, tape)
	if _, err := c.Exec(context.Background(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	defer c.Exec(context.Background(), "ROLLBACK")
	var out []byte
	err := c.QueryRow(context.Background(), "EXPLAIN (ANALYZE, FORMAT JSON) "+text, pgx.QueryExecModeSimpleProtocol).Scan(&out)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return planParse(t, out)
}

func planParse(t *testing.T, text []byte) planNode {
	t.Helper()
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal(text, &plans); err != nil || len(plans) != 1 {
		t.Fatalf("a plan that is not understood: %v: %s", err, text)
	}
	return plans[0].Plan
}
