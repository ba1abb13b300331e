package csvimport_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/examples/import/csvimport"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

func TestRun(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	path := write(t, "\xef\xbb\xbfname;Name;\r\na;\"b\r\nc\";d\r\nragged;row\r\nx\x00;y;z\r\n\"\"\"q\"\"\";;")
	var out bytes.Buffer
	o := csvimport.Options{Pool: pool, Path: path, Sep: ";", Out: &out}
	sum, err := csvimport.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if sum.Runs != 1 || sum.Rows != 2 || sum.Bad != 2 {
		t.Errorf("%+v", sum)
	}
	equal(t, pool, sum.Schema, []line{{2, []string{"a", "b\r\nc", "d"}}, {6, []string{`"q"`, "", ""}}})
	if text := out.String(); !strings.Contains(text, "import: 100 %") || strings.Contains(text, "\r") {
		t.Errorf("lines without a terminal: %q", text)
	}
	out.Reset()
	if err := csvimport.ShowBad(t.Context(), pool, &out, sum.Schema, 5); err != nil {
		t.Fatal(err)
	}
	if want := "  line 4 (12 bytes at 27): fields: 2, not 3\n  line 5 (8 bytes at 39): a NUL byte\n"; out.String() != want {
		t.Errorf("\n got %q\nwant %q", out.String(), want)
	}
	again, err := csvimport.Run(t.Context(), o)
	if err != nil || again != sum {
		t.Errorf("the same file again: %+v, %v; it was imported before", again, err)
	}
}

// TestStoppedAndStartedAgain ends Run in the middle; the next one goes on.
func TestStoppedAndStartedAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	var text strings.Builder
	text.WriteString("n,square\n")
	var want []line
	for n := range 2000 {
		row := []string{strings.Repeat("1", n%7), strings.Repeat("2", n%5)}
		text.WriteString(strings.Join(row, ",") + "\n")
		want = append(want, line{int64(n + 2), row})
	}
	path := write(t, text.String())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &trigger{times: 3, fire: cancel}
	slow := csvimport.Importer{Batch: 20, Pace: 20 * time.Millisecond}
	_, err := csvimport.Run(ctx, csvimport.Options{Pool: pool, Path: path, Out: out, Importer: slow})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("it was stopped, but: %v", err)
	}
	file, err := csvimport.NewFile(path, "", false)
	if err != nil {
		t.Fatal(err)
	}
	if at, rows := state(t, pool, file); at.Off == 0 || at.Off == file.Size || at.Rows != rows {
		t.Errorf("stopped at %+v with %d rows", at, rows)
	}
	sum, err := csvimport.Run(t.Context(), csvimport.Options{Pool: pool, Path: path})
	if err != nil || sum.Rows != 2000 {
		t.Fatal(sum, err)
	}
	equal(t, pool, sum.Schema, want)
}

// trigger fires when progress was shown so many times.
type trigger struct {
	times int
	fire  func()
}

func (w *trigger) Write(p []byte) (int, error) {
	if w.times -= bytes.Count(p, []byte(" %")); w.times <= 0 {
		w.fire()
	}
	return len(p), nil
}

func TestDeadRuns(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(pool *pgxpool.Pool, f csvimport.File) error{
		"FILE_CHANGED": func(_ *pgxpool.Pool, f csvimport.File) error { return os.WriteFile(f.Path, []byte("other"), 0o600) },
		"NO_FILE":      func(_ *pgxpool.Pool, f csvimport.File) error { return os.Remove(f.Path) },
		"SCHEMA_EXISTS": func(pool *pgxpool.Pool, f csvimport.File) error {
			_, err := pool.Exec(context.Background(), "CREATE SCHEMA "+f.Schema)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			im := csvimport.Importer{}
			file, err := csvimport.NewFile(write(t, "a,b\n1,2\n"), "", false)
			if err != nil {
				t.Fatal(err)
			}
			if err := spoil(pool, file); err != nil {
				t.Fatal(err)
			}
			e := start(t, pool, &im)
			run, err := engine.Start(t.Context(), e, csvimport.Import, file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := run.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "prepare") {
				t.Errorf("%v, want %s of step prepare", err, name)
			}
		})
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "some table.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// start has an engine work until the test ends.
func start(t *testing.T, pool *pgxpool.Pool, im *csvimport.Importer) *engine.Engine {
	t.Helper()
	e, err := engine.New(t.Context(), pool, engine.Config{Workflows: []steps.Definition{im.Import()}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Work(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return e
}
