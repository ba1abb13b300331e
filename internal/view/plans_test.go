package view

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// filters are lists that people ask for, of a layout of so many ended runs.
func filters(t testing.TB, pool *pgxpool.Pool) map[string]Filter {
	t.Helper()
	var middle uuid.UUID
	var at time.Time
	if err := pool.QueryRow(context.Background(), "SELECT id, created_at FROM pawl.run WHERE key = 'key50000'").Scan(&middle, &at); err != nil {
		t.Fatal(err)
	}
	return map[string]Filter{
		"newest": {}, "a page": {Before: middle}, "workflow": {Workflow: "mail"}, "failed": {States: []string{"failed"}}, "uncertain": {States: []string{"uncertain"}},
		"running": {States: []string{"running"}}, "scheduled": {States: []string{"scheduled"}}, "succeeded": {States: []string{"succeeded"}}, "cancelled": {States: []string{"cancelled"}, Workflow: "order"},
		"stranded": {States: []string{"stranded"}}, "key": {Key: "key777"}, "tag": {Tags: []string{"eu"}}, "rare tag": {Tags: []string{"rare"}}, "code": {Code: "TIMEOUT"},
		"dead code": {Code: "CODE_3", States: []string{"failed"}}, "step": {Step: "second"}, "until": {Until: at}, "between": {Since: at.Add(-time.Second), Until: at},
	}
}

func listAndStatus(t testing.TB, pool Beginner, all map[string]Filter, took func(what string, d time.Duration, found int)) {
	t.Helper()
	for name, f := range all {
		f.Limit = 20
		begun := time.Now()
		var items []Item
		if err := Read(context.Background(), pool, func(r *Reader) (err error) { items, err = r.List(context.Background(), f); return err }); err != nil {
			t.Fatal(err)
		}
		took("list "+name, time.Since(begun), len(items))
	}
	begun := time.Now()
	if err := Read(context.Background(), pool, func(r *Reader) error { _, err := r.Status(context.Background()); return err }); err != nil {
		t.Fatal(err)
	}
	took("status", time.Since(begun), 0)
}

// TestPlans: no statement reads all of a table that grows, and none visits more
// rows than it may, whatever the planner believes of the tables.
func TestPlans(t *testing.T) {
	t.Parallel()
	n := 200_000
	if testing.Short() {
		n = 100_000
	}
	pool := layout(t, n)
	all := filters(t, pool)
	look := func(t *testing.T) {
		x := &explainer{t: t}
		listAndStatus(t, x.on(pool), all, func(what string, _ time.Duration, found int) {
			if found == 0 && what != "status" && what != "list stranded" {
				t.Errorf("%s finds nothing", what)
			}
		})
		// Waiting jobs are counted, up to a limit; a tag that the newest do not have is asked of its index.
		x.atMost(t, lookMost, "QueueDepths", "LookAtTags")
		if most := x.plans["QueueDepths"].plan.most(); most > depthMost {
			t.Errorf("%d waiting jobs are counted", most)
		}
	}
	t.Run("statistics of empty tables", look)
	if _, err := pool.Exec(t.Context(), "ANALYZE pawl.run, pawl.job, pawl.key, pawl.history, pawl.session"); err != nil {
		t.Fatal(err)
	}
	t.Run("fresh statistics", look)
}

// BenchmarkLook has a million ended runs behind it, and a hundred thousand that
// wait: go test ./internal/view -run - -bench Look -benchtime 1x -v
func BenchmarkLook(b *testing.B) {
	pool := layout(b, 1_000_000)
	if _, err := pool.Exec(context.Background(), "VACUUM ANALYZE pawl.run, pawl.job, pawl.key, pawl.history, pawl.session"); err != nil {
		b.Fatal(err)
	}
	all := filters(b, pool)
	slowest := map[string]time.Duration{}
	for b.Loop() {
		for range 3 {
			listAndStatus(b, pool, all, func(what string, d time.Duration, _ int) { slowest[what] = max(slowest[what], d) })
		}
	}
	for what, d := range slowest {
		b.Logf("%-20s %v", what, d.Round(100*time.Microsecond))
	}
}
