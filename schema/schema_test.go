package schema_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/schema"
	"github.com/pawlworks/pawl/steps"
)

// differ tells the lines that only one of two dumps has.
func differ(a, b string) (lines []string) {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for _, l := range as {
		if !slices.Contains(bs, l) {
			lines = append(lines, "- "+l)
		}
	}
	for _, l := range bs {
		if !slices.Contains(as, l) {
			lines = append(lines, "+ "+l)
		}
	}
	return lines
}

func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	pool := blank(t)
	var all, ready sync.WaitGroup
	for range 8 {
		ready.Add(1)
		own, err := pgxpool.NewWithConfig(t.Context(), pool.Config()) // a process's own connection
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(own.Close)
		all.Go(func() {
			err := own.Ping(context.Background())
			ready.Done()
			ready.Wait() // at once, as near as can be
			if err != nil {
				t.Error(err)
				return
			}
			if err := engine.Migrate(context.Background(), own); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := value[int](t, pool, "SELECT count(*) FROM pawl.version"); n != 1 {
		t.Errorf("%d rows in version", n)
	}
	alone := blank(t)
	if err := engine.Migrate(t.Context(), alone); err != nil {
		t.Fatal(err)
	}
	if lines := differ(dump(t, alone), dump(t, pool)); len(lines) > 0 {
		t.Errorf("eight at once made another schema than one:\n%s", strings.Join(lines, "\n"))
	}
	works(t, pool)
}

func TestMigrateTwice(t *testing.T) {
	t.Parallel()
	pool := blank(t)
	c := conn(t, pool)
	for range 2 {
		if err := schema.Migrate(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	before := dump(t, pool)
	works(t, pool)
	if err := schema.Migrate(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if lines := differ(before, dump(t, pool)); len(lines) > 0 {
		t.Errorf("another Migrate changed the schema:\n%s", strings.Join(lines, "\n"))
	}
	// The connection goes back as it came.
	if n := value[int](t, pool, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"); n != 0 {
		t.Errorf("%d advisory locks are left", n)
	}
	var path string
	if err := c.QueryRow(t.Context(), "SHOW search_path").Scan(&path); err != nil || path != `"$user", public` {
		t.Errorf("the connection's search_path is %q, %v", path, err)
	}
}

// TestSQL applies the text that people are given, and finds the same schema as
// Migrate makes.
func TestSQL(t *testing.T) {
	t.Parallel()
	text, err := schema.SQL(0, schema.Version)
	if err != nil {
		t.Fatal(err)
	}
	byHand, migrated := blank(t), blank(t)
	exec(t, byHand, text) // one simple query of many statements, as psql -f
	if err := engine.Migrate(t.Context(), migrated); err != nil {
		t.Fatal(err)
	}
	if lines := differ(dump(t, migrated), dump(t, byHand)); len(lines) > 0 {
		t.Errorf("Migrate (-) and SQL (+) differ:\n%s", strings.Join(lines, "\n"))
	}
	if len(strings.Split(dump(t, byHand), "\n")) < 100 {
		t.Error("the dump is too short to mean anything")
	}
	if err := engine.Migrate(t.Context(), byHand); err != nil { // nothing to do
		t.Error(err)
	}
	works(t, byHand)
	for _, c := range [][2]int{{0, 0}, {-1, 1}, {0, schema.Version + 1}, {schema.Version, schema.Version}, {1, 0}} {
		if _, err := schema.SQL(c[0], c[1]); err == nil {
			t.Errorf("SQL(%d, %d) has an answer", c[0], c[1])
		}
	}
}

// next is this release's migrations and one more.
func next(t *testing.T, sql string) fs.FS {
	t.Helper()
	files := fstest.MapFS{}
	names, err := fs.Glob(schema.Migrations(), "*.sql")
	if err != nil || len(names) != schema.Version {
		t.Fatal(names, err)
	}
	for _, n := range names {
		b, err := fs.ReadFile(schema.Migrations(), n)
		if err != nil {
			t.Fatal(err)
		}
		files[n] = &fstest.MapFile{Data: b}
	}
	files["002_next.sql"] = &fstest.MapFile{Data: []byte(sql)}
	return files
}

// TestNewerSchema: this release works on what the next one may make of the
// schema by adding to it, also when that happens while it works.
func TestNewerSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	if err := schema.Apply(t.Context(), conn(t, pool), next(t, `
		SET LOCAL lock_timeout = '10s';
		ALTER TABLE pawl.run ADD COLUMN mood text NOT NULL DEFAULT 'good';
		ALTER TABLE pawl.job ADD COLUMN weight integer NOT NULL DEFAULT 1 CHECK (weight > 0);
		ALTER TABLE pawl.history ADD COLUMN seen timestamptz DEFAULT clock_timestamp();
		ALTER TABLE pawl.session ADD COLUMN added_later text;
		ALTER TABLE pawl.definition ADD COLUMN note text;
		CREATE TABLE pawl.extra (shard smallint, id bigint GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (shard, id));
		CREATE INDEX job_weight ON pawl.job (shard, weight);`)); err != nil {
		t.Fatal(err)
	}
	if n := value[int](t, pool, "SELECT version FROM pawl.version"); n != schema.Version+1 {
		t.Fatalf("version %d", n)
	}
	works(t, pool)
	before := dump(t, pool)
	if err := engine.Migrate(t.Context(), pool); err != nil { // leaves what is newer alone
		t.Error(err)
	}
	if lines := differ(before, dump(t, pool)); len(lines) > 0 {
		t.Errorf("Migrate changed a newer schema:\n%s", strings.Join(lines, "\n"))
	}
}

func TestMigrateUnderWork(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	c := conn(t, pool)
	migrated := make(chan error, 1)
	go func() {
		migrated <- schema.Apply(context.Background(), c, next(t, `
			ALTER TABLE pawl.run ADD COLUMN mood text NOT NULL DEFAULT 'good';
			ALTER TABLE pawl.job ADD COLUMN weight integer NOT NULL DEFAULT 1;
			ALTER TABLE pawl.history ADD COLUMN seen timestamptz;`))
	}()
	works(t, pool)
	if err := <-migrated; err != nil {
		t.Error(err)
	}
	works(t, pool)
}

// TestRefused: a schema that this release can't work on is refused by whatever
// a process does first, with a text that says what to do.
func TestRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	breaking := func(t *testing.T, pool *pgxpool.Pool) {
		if err := schema.Apply(ctx, conn(t, pool), next(t, "UPDATE pawl.meta SET oldest_code = 2; ALTER TABLE pawl.job RENAME TO work")); !errors.Is(err, schema.ErrSchema) {
			t.Errorf("Apply: %v", err) // it has been done, and this release can't use it
		}
	}
	for name, c := range map[string]struct {
		make func(*testing.T, *pgxpool.Pool)
		says []string
		mend bool // Migrate does
	}{
		"none":       {func(*testing.T, *pgxpool.Pool) {}, []string{"not there", "pawl migrate"}, true},
		"half":       {func(t *testing.T, p *pgxpool.Pool) { exec(t, p, "CREATE SCHEMA pawl") }, []string{"not there", "pawl migrate"}, true},
		"no version": {func(t *testing.T, p *pgxpool.Pool) { migrated(t, p); exec(t, p, "DROP TABLE pawl.version") }, []string{"not there"}, false},
		"empty":      {func(t *testing.T, p *pgxpool.Pool) { migrated(t, p); exec(t, p, "DELETE FROM pawl.meta") }, []string{"not there"}, false},
		"older": {func(t *testing.T, p *pgxpool.Pool) { migrated(t, p); exec(t, p, "UPDATE pawl.version SET version = 0") },
			[]string{"version 0", "needs 1", "pawl migrate"}, false},
		"breaking": {breaking, []string{"version 2", "deploy a newer release"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "breaking" { // it takes away what the doctor would read
				pgtest.SkipDoctor(t)
			}
			pool := blank(t)
			c.make(t, pool)
			_, err := engine.New(ctx, pool, engine.Config{Workflows: []steps.Definition{sumOf()}})
			for what, err := range map[string]error{"New": err, "Check": schema.Check(ctx, pool)} {
				if !errors.Is(err, engine.ErrSchema) {
					t.Fatalf("%s: %v", what, err)
				}
				for _, s := range c.says {
					if !strings.Contains(err.Error(), s) {
						t.Errorf("%s does not say %q: %v", what, s, err)
					}
				}
			}
			if err := engine.Migrate(ctx, pool); (err == nil) != c.mend {
				t.Errorf("Migrate: %v", err)
			} else if c.mend {
				works(t, pool)
			}
		})
	}
}

func migrated(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if err := engine.Migrate(context.Background(), pool); err != nil {
		t.Fatal(err)
	}
}

// TestRefusedLater: a process that began before a breaking migration does not
// start to work after it.
func TestRefusedLater(t *testing.T) {
	t.Parallel()
	pool := blank(t)
	migrated(t, pool)
	e, err := engine.New(t.Context(), pool, engine.Config{Workflows: []steps.Definition{sumOf()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Apply(t.Context(), conn(t, pool), next(t, "UPDATE pawl.meta SET oldest_code = 2")); !errors.Is(err, schema.ErrSchema) {
		t.Errorf("Apply: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // it would work, were it not refused
	defer cancel()
	if err := e.Work(ctx); !errors.Is(err, engine.ErrSchema) || !strings.Contains(err.Error(), "deploy a newer release") {
		t.Errorf("Work: %v", err)
	}
}

// TestFailedMigration: a migration that fails leaves nothing of itself, and
// the connection usable.
func TestFailedMigration(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	c := conn(t, pool)
	before := dump(t, pool)
	if err := schema.Apply(t.Context(), c, next(t, "CREATE TABLE pawl.half (); SELECT 1/0")); err == nil || !strings.Contains(err.Error(), "22012") {
		t.Errorf("got %v", err)
	}
	if lines := differ(before, dump(t, pool)); len(lines) > 0 {
		t.Errorf("something is left:\n%s", strings.Join(lines, "\n"))
	}
	if err := schema.Migrate(t.Context(), c); err != nil {
		t.Error(err)
	}
	works(t, pool)
}
