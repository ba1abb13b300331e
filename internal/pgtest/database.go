package pgtest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pawlworks/pawl/internal/doctor"
	"github.com/pawlworks/pawl/internal/pglocal"
	"github.com/pawlworks/pawl/schema"
)

const template = "pawl_template"

// catalog makes and drops a server's databases.
type catalog struct {
	server *pglocal.Server
	made   atomic.Int64 // databases, for their names

	// pool has one connection to the database "postgres": CREATE DATABASE
	// from one template runs one at a time anyway, so they queue here.
	pool *pgxpool.Pool

	once sync.Once
	err  error // of preparing the template
}

var catalogs = struct {
	sync.Mutex
	of map[*pglocal.Server]*catalog
}{of: map[*pglocal.Server]*catalog{}}

// Database is the URL of a fresh database with the schema in it. It is
// examined and dropped when the test ends.
func Database(t testing.TB) string {
	t.Helper()
	return DatabaseOn(t, Server(t))
}

// DatabaseOn is Database on a server of the test's own. The server must be up
// again when the test ends.
func DatabaseOn(t testing.TB, s *pglocal.Server) string {
	t.Helper()
	return catalogOf(s).make(t, template, examine)
}

// Blank is the URL of a fresh database without the schema. What a test makes of
// it is examined as well, if the schema is there when the test ends.
func Blank(t testing.TB) string {
	t.Helper()
	return catalogOf(Server(t)).make(t, "template0", func(ctx context.Context, t testing.TB, url string) {
		t.Helper()
		there, err := migrated(ctx, url)
		if err != nil {
			t.Errorf("pgtest: examine the database: %v", err)
		}
		if there {
			examine(ctx, t, url)
		}
	})
}

// migrated tells whether the whole schema is there: its tables come in one
// transaction.
func migrated(ctx context.Context, url string) (there bool, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return false, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "SELECT pg_catalog.to_regclass('pawl.run') IS NOT NULL").Scan(&there)
	return there, err
}

// make makes a database and has it examined and dropped when the test ends.
func (c *catalog) make(t testing.TB, from string, examine func(context.Context, testing.TB, string)) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c.once.Do(func() { c.err = c.prepare(ctx) })
	if c.err != nil {
		t.Fatal(c.err)
	}
	name := fmt.Sprintf("pawl_%d", c.made.Add(1))
	// WAL_LOG is PostgreSQL's default, and much faster than FILE_COPY here:
	// the latter makes two checkpoints.
	if _, err := c.pool.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+from+" STRATEGY wal_log"); err != nil {
		t.Fatalf("pgtest: make a database: %v", err)
	}
	url := c.server.URL(name)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		examine(ctx, t, url)
		// FORCE: a test that failed may have left connections.
		if _, err := c.pool.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("pgtest: drop the database: %v", err)
		}
	})
	return url
}

func catalogOf(s *pglocal.Server) *catalog {
	catalogs.Lock()
	defer catalogs.Unlock()
	c := catalogs.of[s]
	if c == nil {
		c = &catalog{server: s}
		catalogs.of[s] = c
	}
	return c
}

// forget closes what we keep of a server that is about to stop.
func forget(s *pglocal.Server) {
	catalogs.Lock()
	defer catalogs.Unlock()
	if c := catalogs.of[s]; c != nil && c.pool != nil {
		c.pool.Close()
	}
	delete(catalogs.of, s)
}

// prepare opens the pool and makes the template.
func (c *catalog) prepare(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(c.server.URL("postgres"))
	if err != nil {
		return err
	}
	config.MaxConns = 1
	// A test may have killed the server since the last use.
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true }
	if c.pool, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
		return err
	}
	if _, err := c.pool.Exec(ctx, "CREATE DATABASE "+template); err != nil {
		return fmt.Errorf("pgtest: make the template: %w", err)
	}
	conn, err := pgx.Connect(ctx, c.server.URL(template))
	if err != nil {
		return fmt.Errorf("pgtest: make the template: %w", err)
	}
	// Closed before anybody copies: a database in use can't be a template.
	if err := schema.Migrate(ctx, conn); err != nil {
		_ = conn.Close(ctx)
		return fmt.Errorf("pgtest: make the template: %w", err)
	}
	return conn.Close(ctx)
}

// examine fails the test for everything that is broken in its database.
func examine(ctx context.Context, t testing.TB, url string) {
	t.Helper()
	if _, skip := skips.Load(t); skip {
		return
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		t.Errorf("pgtest: examine the database: %v", err)
		return
	}
	defer pool.Close()
	broken, err := doctor.Check(ctx, pool)
	if err != nil {
		t.Errorf("pgtest: examine the database: %v", err)
	}
	for _, what := range broken {
		t.Errorf("the test left a broken database: %s", what)
	}
}

var skips sync.Map // testing.TB → struct{}

// SkipDoctor is for tests that break things on purpose: the databases of this
// test are not examined.
func SkipDoctor(t testing.TB) {
	skips.Store(t, struct{}{})
	t.Cleanup(func() { skips.Delete(t) })
}
