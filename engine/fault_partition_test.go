package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// A day's partition of the history is locked for a while (CREATE INDEX,
// VACUUM FULL, retention): only runs of that day may have to wait.
func TestFaultLockedPartition(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("plain")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("p", same))}})
	effExec(t, pool, "CREATE OR REPLACE FUNCTION pawl.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp() - interval ''1 day'''")
	old, err := engine.StartMany(context.Background(), e, w, make([]int, 10))
	if err != nil {
		t.Fatal(err)
	}
	effExec(t, pool, "CREATE OR REPLACE FUNCTION pawl.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp()'")
	part := "history_" + time.Now().UTC().AddDate(0, 0, -1).Format("20060102")
	tx, err := pool.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(context.Background(), "LOCK TABLE pawl."+part+" IN SHARE MODE"); err != nil { // as CREATE INDEX does
		t.Fatal(err)
	}
	news, err := engine.StartMany(context.Background(), e, w, make([]int, 10))
	if err != nil {
		t.Fatal(err)
	}
	work(t, e)
	deadline, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, r := range news {
		if _, err := r.Wait(deadline); err != nil {
			t.Errorf("a run of today waits for yesterday's partition: %v", err)
			break
		}
	}
	tx.Rollback(context.Background())
	for _, r := range append(old, news...) {
		effSuccess(t, e, r)
	}
}

// The same for recovery: a lapsed job of yesterday keeps all others from being taken back.
func TestFaultLockedPartitionRecovery(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("plain")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("p", same))}})
	effExec(t, pool, "CREATE OR REPLACE FUNCTION pawl.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp() - interval ''1 day'''")
	old := effStart(t, e, w, 1)
	effExec(t, pool, "CREATE OR REPLACE FUNCTION pawl.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp()'")
	fresh := effStart(t, e, w, 1)
	// both are held by a worker that is gone
	effExec(t, pool, "INSERT INTO pawl.session (id, name, routes, floors, started_at, expires_at) VALUES ('00000000-0000-4000-8000-000000000001', 'killed', '{}', '{}', pawl.clock(), pawl.clock())")
	effExec(t, pool, "UPDATE pawl.job SET state = 'running', owner = '00000000-0000-4000-8000-000000000001', token = token + 1, attempt = 1, granted_at = pawl.clock(), expires_at = pawl.clock() + interval '1 min', deadline_at = pawl.clock() + interval '15 min'")
	part := "history_" + time.Now().UTC().AddDate(0, 0, -1).Format("20060102")
	tx, err := pool.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(context.Background(), "LOCK TABLE pawl."+part+" IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	work(t, e)
	deadline, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	if _, err := fresh.Wait(deadline); err != nil {
		t.Errorf("a job of today is not taken back while yesterday's partition is locked: %v", err)
	}
	tx.Rollback(context.Background())
	effSuccess(t, e, old)
	effSuccess(t, e, fresh)
}
