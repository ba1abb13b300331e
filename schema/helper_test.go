package schema_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

const patience = 90 * time.Second

// blank is a pool on a database without the schema.
func blank(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), pgtest.Blank(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// conn is one connection of the pool, for the length of the test.
func conn(t *testing.T, pool *pgxpool.Pool) *pgx.Conn {
	t.Helper()
	c, err := pool.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Release)
	return c.Conn()
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func value[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (v T) {
	t.Helper()
	if err := pool.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

var sum = steps.Declare[int, int]("sum")

func sumOf() steps.Definition {
	add := func(_ context.Context, n int) (int, error) { return n + 1, nil }
	return sum.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
		return steps.New("two", add).Do(f, steps.New("one", add).Do(f, in))
	})
}

// works runs an engine of this release on the database: runs are started by
// Go and by SQL, finish, and leave nothing for the doctor.
func works(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	e, err := engine.New(ctx, pool, engine.Config{Workflows: []steps.Definition{sumOf()}})
	if err != nil {
		t.Fatal(err)
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- e.Work(working) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	for i := range 10 {
		run, err := engine.Start(ctx, e, sum, i, engine.Key(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		if out, err := run.Wait(ctx); err != nil || out != i+2 {
			t.Error(out, err)
		}
	}
	run, err := engine.Handle(ctx, e, sum, value[string](t, pool, "SELECT pawl.start('sum', '40', 'by sql')::text"))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := run.Wait(ctx); err != nil || out != 42 {
		t.Error(out, err)
	}
	if broken, err := e.Doctor(ctx); err != nil || len(broken) > 0 {
		t.Error(broken, err)
	}
}

// dump describes everything in schema pawl, in an order of its own. (Dates in
// the names of partitions are the same on the same day; tests that compare
// make the schemas one after the other, and skip the partitions at midnight.)
func dump(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	rows, err := pool.Query(context.Background(), `
SELECT format('table %s kind %s options %s bound %s', c.relname, c.relkind, c.reloptions, pg_get_expr(c.relpartbound, c.oid)) AS line
  FROM pg_class c WHERE c.relnamespace = 'pawl'::regnamespace
UNION ALL
SELECT format('column %s.%s %s %s null %s default %s identity %s generated %s storage %s', c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod),
              NOT a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attidentity, a.attgenerated, a.attstorage)
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
 WHERE c.relnamespace = 'pawl'::regnamespace
UNION ALL
SELECT format('constraint %s %s %s', n.conrelid::regclass, n.conname, pg_get_constraintdef(n.oid)) FROM pg_constraint n WHERE n.connamespace = 'pawl'::regnamespace
UNION ALL
SELECT format('index %s', pg_get_indexdef(i.indexrelid)) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = 'pawl'::regnamespace
UNION ALL
SELECT format('function %s', pg_get_functiondef(p.oid)) FROM pg_proc p WHERE p.pronamespace = 'pawl'::regnamespace
UNION ALL
SELECT format('trigger %s', pg_get_triggerdef(g.oid)) FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid WHERE c.relnamespace = 'pawl'::regnamespace AND NOT g.tgisinternal
UNION ALL
SELECT format('comment %s %s', o.objoid, o.description) FROM pg_description o JOIN pg_class c ON c.oid = o.objoid WHERE c.relnamespace = 'pawl'::regnamespace
UNION ALL
SELECT format('version %s', v.version) FROM pawl.version v
UNION ALL
SELECT format('meta %s', m) FROM pawl.meta m
ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
