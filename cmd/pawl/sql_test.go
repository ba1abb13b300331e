package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/engine"
)

// TestSQLDocs runs each query of docs/sql.md on a database with trouble in it:
// every one must find something.
func TestSQLDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	p := plant(t)
	p.trouble()
	p.start(orders, "fine", engine.Key("order-42"))
	p.exec(`UPDATE pawl.run SET input = '{"Customer": "c-17"}' WHERE id = $1`, p.runs["evil"])
	p.work(p.e)
	p.until(p.runs["fine"], engine.Succeeded)
	queries := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(queries) < 9 {
		t.Fatalf("%d queries", len(queries))
	}
	for _, q := range queries {
		if strings.HasPrefix(q[1], "GRANT") {
			p.exec("CREATE ROLE reader_of_" + p.pool.Config().ConnConfig.Database)
			p.exec(strings.ReplaceAll(q[1], "TO reader", "TO reader_of_"+p.pool.Config().ConnConfig.Database))
			p.exec("DROP OWNED BY reader_of_" + p.pool.Config().ConnConfig.Database + "; DROP ROLE reader_of_" + p.pool.Config().ConnConfig.Database)
			continue
		}
		if rows := p.query(q[1]); len(rows) == 0 {
			t.Errorf("nothing is found by\n%s", q[1])
		}
	}
}

// query returns rows as text.
func (p *planted) query(sql string, args ...any) (found []string) {
	p.t.Helper()
	rows, err := p.pool.Query(context.Background(), sql, args...)
	if err != nil {
		p.t.Fatal(err)
	}
	found, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (string, error) {
		v, err := r.Values()
		return fmt.Sprint(v...), err
	})
	if err != nil {
		p.t.Fatalf("%v: %s", err, sql)
	}
	return found
}

func TestSQLViews(t *testing.T) {
	t.Parallel()
	p := plant(t)
	p.trouble()
	// The state is the one that the library says.
	all, err := p.e.List(context.Background(), engine.Filter{})
	if err != nil || len(all) != 6 {
		t.Fatal(len(all), err)
	}
	for _, i := range all {
		want := fmt.Sprintf("%s|%s|%s|%s|%s|%t", i.State, i.Step, i.Code, i.Key, i.Owner, !i.DueAt.IsZero())
		got := p.query("SELECT concat_ws('|', state, coalesce(step, ''), coalesce(code, ''), coalesce(key, ''), coalesce(owner, ''), CASE WHEN due_at IS NOT NULL THEN 'true' ELSE 'false' END) FROM pawl.runs WHERE id = $1", i.ID)
		if len(got) != 1 || got[0] != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	// What is no JSON fails nobody's query, however bad it is.
	for name, bytes := range map[string]string{"no UTF-8": `\xff00`, "no JSON": `\x7b`, "nothing": `\x`, "deep": `\x` + strings.Repeat("5b", 200_000), "a NUL": `\x2261005c22`} {
		p.exec("UPDATE pawl.run SET input = $2::bytea WHERE id = $1", p.runs["fine"], bytes)
		p.exec("UPDATE pawl.history SET output = $2::bytea WHERE run_id = $1", p.runs["fine"], bytes)
		for _, sql := range []string{"SELECT input ->> 'not_json' FROM pawl.runs WHERE input ->> 'not_json' IS NOT NULL", "SELECT result ->> 'not_json' FROM pawl.runs WHERE result ->> 'not_json' IS NOT NULL",
			"SELECT output ->> 'not_json' FROM pawl.transitions WHERE output ->> 'not_json' IS NOT NULL"} {
			if rows := p.query(sql); len(rows) != 1 {
				t.Errorf("%s: %d rows of %s", name, len(rows), sql)
			}
		}
	}
	p.exec(`UPDATE pawl.definition SET graph = '\xff' WHERE workflow = 'order'`)
	for _, view := range []string{"runs", "jobs", "transitions", "effects", "late_results", "steps", "workers", "queues"} {
		p.query("SELECT * FROM pawl." + view)
	}
	if rows := p.query(`SELECT table_name FROM information_schema.views WHERE table_schema = 'pawl' AND (is_updatable = 'YES' OR is_insertable_into = 'YES')`); len(rows) > 0 {
		t.Errorf("one can write through %v", rows)
	}
	if rows := p.query(`SELECT table_name FROM information_schema.views WHERE table_schema = 'pawl'`); len(rows) != 8 {
		t.Errorf("%d views, and docs/sql.md tells of 8: %v", len(rows), rows)
	}
	p.exec(`UPDATE pawl.definition SET graph = '{"steps":[{"name":"charge"}]}' WHERE workflow = 'order'`)
	p.exec(`UPDATE pawl.run SET input = '1' WHERE id = $1`, p.runs["fine"])
}
