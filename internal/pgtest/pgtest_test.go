package pgtest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pawlworks/pawl/internal/pglocal"
	"github.com/pawlworks/pawl/schema"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	a, b := Pool(t), Pool(t)
	if _, err := a.Exec(t.Context(), "CREATE TABLE mine ()"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Exec(t.Context(), "CREATE TABLE mine ()"); err != nil {
		t.Error("they share a table:", err)
	}
	var version int
	if err := a.QueryRow(t.Context(), "SELECT version FROM pawl.version").Scan(&version); err != nil || version == 0 {
		t.Errorf("the schema is missing: version %d, %v", version, err)
	}
}

func TestDatabaseIsDropped(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("user", func(t *testing.T) {
		url = Database(t)
		conn, err := pgx.Connect(t.Context(), url) // left open on purpose
		if err != nil {
			t.Fatal(err)
		}
		_ = conn
	})
	conn, err := pgx.Connect(t.Context(), url)
	if err == nil {
		_ = conn.Close(t.Context())
		t.Fatal("the database is still there")
	}
}

func TestOwnServerMayBeKilled(t *testing.T) {
	t.Parallel()
	s := Own(t, pglocal.Options{})
	pool := PoolOn(t, s)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE mine AS SELECT 1 AS n"); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "SELECT n FROM mine"); err != nil {
		t.Error(err)
	}
}

// recorder is a test whose failures are ours to look at.
type recorder struct {
	testing.TB
	errors   []string
	cleanups []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(f string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(f, args...))
}

func (r *recorder) end() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

// sicken plants what can't be: a cursor without a job.
func sicken(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "INSERT INTO pawl.cursor (shard, job, seq, encoding, saved_at) VALUES (0, 1, 1, 'json', now())"); err != nil {
		t.Fatal(err)
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	patient := &recorder{TB: t}
	sicken(t, Database(patient))
	patient.end()
	if len(patient.errors) != 1 || !strings.Contains(patient.errors[0], "cursor-astray") {
		t.Errorf("the test was told %q", patient.errors)
	}
	waived := &recorder{TB: t}
	SkipDoctor(waived)
	sicken(t, Database(waived))
	waived.end()
	if len(waived.errors) != 0 {
		t.Errorf("in spite of SkipDoctor: %q", waived.errors)
	}
}

// TestBlank: without the schema there is nothing to examine; once a test has
// made it, its database is examined like any other.
func TestBlank(t *testing.T) {
	t.Parallel()
	untouched := &recorder{TB: t}
	conn, err := pgx.Connect(t.Context(), Blank(untouched))
	if err != nil {
		t.Fatal(err)
	}
	var there bool
	if err := conn.QueryRow(t.Context(), "SELECT to_regnamespace('pawl') IS NOT NULL").Scan(&there); err != nil || there {
		t.Errorf("it has the schema: %v", err)
	}
	_ = conn.Close(t.Context())
	untouched.end()
	if len(untouched.errors) != 0 {
		t.Errorf("of an empty database: %q", untouched.errors)
	}
	for _, skip := range []bool{false, true} {
		patient := &recorder{TB: t}
		if skip {
			SkipDoctor(patient)
		}
		url := Blank(patient)
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Migrate(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close(t.Context())
		sicken(t, url)
		patient.end()
		if told := len(patient.errors) == 1 && strings.Contains(patient.errors[0], "cursor-astray"); told == skip {
			t.Errorf("with SkipDoctor %v the test was told %q", skip, patient.errors)
		}
		if conn, err := pgx.Connect(t.Context(), url); err == nil {
			_ = conn.Close(t.Context())
			t.Error("the database is still there")
		}
	}
}

func BenchmarkDatabase(b *testing.B) {
	Server(b)
	for b.Loop() {
		start := time.Now()
		r := &recorder{TB: b}
		Database(r)
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "ms/make")
		r.end()
	}
}
