package csvimport_test

import (
	"bufio"
	"context"
	"encoding/csv"
	"io"
	"os"
	"os/exec"
	"slices"
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
		moved(t, pool, file, max(last.Off, file.Size*int64(n+1)/(kills+2))) // all over the file
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

// worker is a process that works.
type worker struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func startWorker(t *testing.T, url string, pace time.Duration) *worker {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), workVariable+"="+url, paceVariable+"="+pace.String())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := &worker{cmd, stdin}
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the worker said %q, %v", line, err)
	}
	return w
}

// kill ends the worker as kill -9 does.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}

// moved waits until the cursor stands behind off. It is another process that
// moves it, and tells nobody.
func moved(t *testing.T, pool *pgxpool.Pool, file csvimport.File, off int64) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if at, _ := state(t, pool, file); at.Off > off {
			return
		}
	}
	t.Fatalf("the cursor has not moved from %d within 30 s", off)
}

// state reads the cursor and counts the rows, in one snapshot.
func state(t *testing.T, pool *pgxpool.Pool, file csvimport.File) (at csvimport.Pos, rows int64) {
	t.Helper()
	err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		err := tx.QueryRow(t.Context(), "SELECT convert_from(value, 'UTF8')::json FROM pawl.cursor WHERE value IS NOT NULL").Scan(&at)
		if err == pgx.ErrNoRows {
			return nil
		}
		if err != nil {
			return err
		}
		return tx.QueryRow(t.Context(), "SELECT count(*) FROM "+pgx.Identifier{file.Schema, "rows"}.Sanitize()).Scan(&rows)
	})
	if err != nil {
		t.Fatal(err)
	}
	return at, rows
}

// line is a row of the file by the library's count.
type line struct {
	number int64
	values []string
}

// reference reads the file with encoding/csv: header and rows.
func reference(t *testing.T, path string) (all []line) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r := csv.NewReader(file)
	for {
		values, err := r.Read()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		number, _ := r.FieldPos(0)
		all = append(all, line{int64(number), values})
	}
}

// equal compares the table with the file, row for row.
func equal(t *testing.T, pool *pgxpool.Pool, schema string, want []line) {
	t.Helper()
	rows, err := pool.Query(context.Background(), "SELECT * FROM "+pgx.Identifier{schema, "rows"}.Sanitize()+" ORDER BY line")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		values, err := rows.Values()
		if err != nil {
			t.Fatal(err)
		}
		got := line{number: values[0].(int64)}
		for _, v := range values[1:] {
			got.values = append(got.values, v.(string))
		}
		if n >= len(want) {
			t.Fatalf("more than the %d rows of the file", len(want))
		}
		if got.number != want[n].number || !slices.Equal(got.values, want[n].values) {
			t.Fatalf("row %d is %+v, want %+v", n+1, got, want[n])
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if n != len(want) {
		t.Errorf("%d rows, the file has %d", n, len(want))
	}
}
