package main

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	pgtest.SkipDoctor(t) // it is broken on purpose
	url := pgtest.Database(t)
	if code, out, errOut := pawl(t, "doctor", "-database", url); code != exitOK || out != "doctor: ok\n" || errOut != "" {
		t.Fatalf("exit code %d, %q, %q", code, out, errOut)
	}
	id := runWithoutJob(t, url)
	code, out, errOut := pawl(t, "doctor", "-database", url)
	if code != exitFailed || errOut != "" || !strings.Contains(out, id) || !strings.HasSuffix(out, "doctor: 1 violations\n") {
		t.Errorf("exit code %d, %q, %q: want a violation that names run %s", code, out, errOut, id)
	}
}

func TestDoctorWithoutSchema(t *testing.T) {
	t.Parallel()
	code, _, errOut := pawl(t, "doctor", "-database", pgtest.Blank(t))
	if code != exitFailed || !strings.Contains(errOut, "pawl migrate") {
		t.Errorf("exit code %d, %q", code, errOut)
	}
}

// runWithoutJob makes what must never be there, and returns its id.
func runWithoutJob(t *testing.T, url string) string {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	w := steps.Declare[int, int]("one-step")
	step := steps.New("step", func(_ context.Context, n int) (int, error) { return n, nil })
	e, err := engine.New(t.Context(), pool, engine.Config{Workflows: []steps.Definition{w.Of(step)}})
	if err != nil {
		t.Fatal(err)
	}
	run, err := engine.Start(t.Context(), e, w, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "DELETE FROM pawl.job WHERE run_id = $1", run.ID); err != nil {
		t.Fatal(err)
	}
	return run.ID
}
