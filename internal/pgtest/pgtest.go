// Package pgtest gives tests a PostgreSQL: one throw-away server for a test
// process, and a fresh database for every test that asks.
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
//
//	func TestX(t *testing.T) {
//		t.Parallel()
//		pool := pgtest.Pool(t)
//		…
//	}
//
// The schema is migrated once, into a template; a database is a copy of it.
// When a test ends, its database is examined by internal/doctor, and what is
// broken in it fails the test.
package pgtest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pawlworks/pawl/internal/pglocal"
	"go.uber.org/goleak"
)

// patience bounds what should take milliseconds, so that a hanging server
// fails a test rather than the whole run.
const patience = 60 * time.Second

var shared struct {
	sync.Mutex
	server *pglocal.Server
	err    error // of the first start; another would only waste time
}

// Server is the process's server, started by the first who asks. Tests that
// kill or configure a server take their own: Own.
func Server(t testing.TB) *pglocal.Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		shared.server, shared.err = pglocal.Start(ctx, pglocal.Options{})
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// Own is a server for this test alone; it may be killed and restarted.
func Own(t testing.TB, o pglocal.Options) *pglocal.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := pglocal.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		forget(s)
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Main runs the tests, stops the server and returns the exit code. Goroutines
// that the tests left behind make it 1. Without it the server ends as well, a
// moment after the process.
func Main(m *testing.M) int {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given { // tests here mostly wait: two at once, on two cores, would take for ever
		_ = flag.Set("test.parallel", "8")
	}
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		forget(shared.server)
		if err := shared.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// Pool is a pool on a fresh database. It is closed when the test ends.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return PoolOn(t, Server(t))
}

// PoolOn is Pool on a server of the test's own.
func PoolOn(t testing.TB, s *pglocal.Server) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), DatabaseOn(t, s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
