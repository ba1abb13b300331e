package csvimport_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/examples/import/csvimport"
	"github.com/pawlworks/pawl/internal/pgtest"
)

const (
	kills = 30
	pace  = 5 * time.Millisecond // a chunk, so that there is time to kill
)

// TestKilledThirtyTimes kills the worker at thirty places of the file. After
// each kill the table holds exactly what the cursor says; at the end it equals the file.
func TestKilledThirtyTimes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes most of a minute: each kill waits for a session to lapse")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	path, err := csvimport.Sample()
	if err != nil {
		t.Fatal(err)
	}
	file, err := csvimport.NewFile(path, "", false)
	if err != nil {
		t.Fatal(err)
	}
	url := pgtest.Database(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	e, err := engine.New(t.Context(), pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}

	worker := startWorker(t, url, pace)
	run, err := engine.Start(t.Context(), e, csvimport.Import, file, engine.Key(file.Key()))
	if err != nil {
		t.Fatal(err)
	}
	var last csvimport.Pos
	for n := range kills {
		moved(t, pool, max(last.Off, file.Size*int64(n+1)/(kills+2))) // all over the file
		worker.kill()
		at, rows := state(t, pool, file)
		if at.Off <= last.Off || at.Off >= file.Size {
			t.Fatalf("kill %d: the cursor went from %d to %d of %d", n+1, last.Off, at.Off, file.Size)
		}
		if at.Rows != rows || at.Bad != 0 {
			t.Fatalf("kill %d: the cursor counts %+v, the table holds %d rows", n+1, at.Stats, rows)
		}
		last = at
		worker = startWorker(t, url, pace)
	}
	t.Logf("killed %d times, the last at %d of %d bytes", kills, last.Off, file.Size)
	stats, err := run.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := reference(t, path)[1:]
	if stats.Rows != int64(len(want)) || stats.Bad != 0 {
		t.Errorf("%+v, but the file has %d rows", stats, len(want))
	}
	equal(t, pool, file.Schema, want)

	var lapsed, completed, attempts int
	err = pool.QueryRow(t.Context(), `
		SELECT count(*) FILTER (WHERE event = 'lapsed'), count(*) FILTER (WHERE event = 'completed'), max(attempt)
		  FROM pawl.history WHERE run_id = $1`, run.ID).Scan(&lapsed, &completed, &attempts)
	if err != nil {
		t.Fatal(err)
	}
	if lapsed < kills || completed != 2 || attempts < kills+1 {
		t.Errorf("the history tells of %d lapsed leases, %d completed steps, %d attempts", lapsed, completed, attempts)
	}
}

// moved waits until the cursor stands behind off. It is another process that
// moves it, and tells nobody.
func moved(t *testing.T, pool *pgxpool.Pool, off int64) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if position(t, pool).Off > off {
			return
		}
	}
	t.Fatalf("the cursor has not moved from %d within 30 s", off)
}

// position reads the cursor of the one run there is.
func position(t *testing.T, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (at csvimport.Pos) {
	t.Helper()
	err := db.QueryRow(t.Context(), "SELECT convert_from(value, 'UTF8')::json FROM pawl.cursor WHERE value IS NOT NULL").Scan(&at)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	return at
}

// state reads the cursor and counts the rows, in one snapshot.
func state(t *testing.T, pool *pgxpool.Pool, file csvimport.File) (at csvimport.Pos, rows int64) {
	t.Helper()
	err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		at = position(t, tx)
		return tx.QueryRow(t.Context(), "SELECT count(*) FROM "+pgx.Identifier{file.Schema, "rows"}.Sanitize()).Scan(&rows)
	})
	if err != nil {
		t.Fatal(err)
	}
	return at, rows
}
