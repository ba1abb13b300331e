package engine

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/pgtest"
)

// TestShardOf pins both functions that say where a key lives to constants
// computed apart from them: a change of either would lose every key there is.
func TestShardOf(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	numbers := []int16{1, 2, 8, 1000, 4096}
	for key, want := range map[string][]int16{
		"":                       {0, 0, 2, 610, 1090},
		"a":                      {0, 0, 2, 610, 274},
		"order-42":               {0, 1, 7, 71, 343},
		"日本 ' \\ x":              {0, 0, 6, 222, 4022},
		strings.Repeat("k", 512): {0, 0, 4, 404, 2556},
	} {
		for i, n := range numbers {
			var sql int16
			if err := pool.QueryRow(t.Context(), "SELECT pawl.shard_of($1, $2)", key, n).Scan(&sql); err != nil {
				t.Fatal(err)
			}
			if code := shardOf(key, n); code != want[i] || sql != want[i] {
				t.Errorf("%.20q of %d: Go says %d, SQL %d, want %d", key, n, code, sql, want[i])
			}
		}
	}
}

// TestRunID: a run's id is a UUIDv7 whose time is the database's, however far
// that is from this process's, and whose rand_a bits are the shard.
func TestRunID(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	pgtest.SkipDoctor(t) // the clock is wrong, so partitions of these days are missing
	if _, err := pool.Exec(t.Context(), `CREATE OR REPLACE FUNCTION pawl.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS
		'SELECT pg_catalog.clock_timestamp() + interval ''1000 days'''`); err != nil {
		t.Fatal(err)
	}
	seen := map[uuid.UUID]bool{}
	for _, shard := range []int16{0, 1, 7, 255, 256, 4095} {
		var id uuid.UUID
		var before, after time.Time
		if err := pool.QueryRow(context.Background(), `SELECT b.t, pawl.new_run_id($1, b.t), pawl.clock() FROM (SELECT pawl.clock() AS t) b`, shard).Scan(&before, &id, &after); err != nil {
			t.Fatal(err)
		}
		if id.Version() != 7 || id.Variant() != uuid.RFC4122 {
			t.Errorf("%s is of version %d, variant %v", id, id.Version(), id.Variant())
		}
		if got := shardIn(id); got != shard {
			t.Errorf("%s is of shard %d, not %d", id, got, shard)
		}
		at := time.UnixMilli(int64(id[0])<<40 | int64(id[1])<<32 | int64(id[2])<<24 | int64(id[3])<<16 | int64(id[4])<<8 | int64(id[5]))
		if at.Before(before.Add(-time.Millisecond)) || at.After(after.Add(time.Millisecond)) {
			t.Errorf("%s is of %v, made between %v and %v", id, at, before, after)
		}
		if at.Before(time.Now().AddDate(0, 0, 900)) {
			t.Errorf("%s has this process's time", id)
		}
		seen[id] = true
	}
	if len(seen) != 6 {
		t.Errorf("only %d ids differ", len(seen))
	}
	// So does a start, to the end: its id and its times are of the same clock.
	var start time.Duration
	if err := pool.QueryRow(t.Context(), `INSERT INTO pawl.definition (workflow, hash, graph, queue, active_at)
		VALUES ('w', '', '{"steps":[]}', 'default', pawl.clock()) RETURNING 0`).Scan(&start); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "INSERT INTO pawl.route (definition, queue, priority) SELECT id, 'default', 1 FROM pawl.definition"); err != nil {
		t.Fatal(err)
	}
	var id uuid.UUID
	var created, due time.Time
	if err := pool.QueryRow(t.Context(), "SELECT pawl.start('w')").Scan(&id); err != nil {
		t.Fatal(err)
	}
	if err := pool.QueryRow(t.Context(), "SELECT r.created_at, j.due_at FROM pawl.run r JOIN pawl.job j ON j.run_id = r.id WHERE r.id = $1", id).Scan(&created, &due); err != nil {
		t.Fatal(err)
	}
	sec, nsec := id.Time().UnixTime()
	if d := created.Sub(time.Unix(sec, nsec)).Abs(); d > 2*time.Millisecond || !due.Equal(created) {
		t.Errorf("created %v, due %v, the id says %v", created, due, time.Unix(sec, nsec))
	}
}
