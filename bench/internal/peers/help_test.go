package peers_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pawlworks/pawl/internal/pglocal"
	"go.uber.org/goleak"

	"github.com/pawlworks/pawl/bench/internal/system"
)

const steps, runs = 3, 20

var server *pglocal.Server

// patience is long: others may use the machine too.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "9") // the tests mostly wait
	var err error
	if server, err = pglocal.Start(context.Background(), pglocal.Options{Settings: map[string]string{"max_connections": "300"}}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code == 0 { // all contestants have stopped: nothing of them may be left
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// ledger notes how often each step of each run began.
type ledger struct {
	mu   sync.Mutex
	seen map[string]int
}

func (l *ledger) note(run string, step int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[fmt.Sprintf("%s/%d", run, step)]++
}

// expect checks that n runs took all of their steps once.
func (l *ledger) expect(t *testing.T, n int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for what, times := range l.seen {
		if times != 1 {
			t.Errorf("step %s ran %d times", what, times)
		}
	}
	if len(l.seen) != n*steps {
		t.Errorf("%d steps ran, not %d", len(l.seen), n*steps)
	}
}

// open gives the contestant an empty database. When the test ends nothing may
// use it any more, and no goroutine of the contestant's may run.
func open(t *testing.T, name string, c system.Contestant, onStep func(string, int), lease time.Duration) system.System {
	t.Helper()
	ctx := context.Background()
	admin, err := pgxpool.New(ctx, server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	config, err := pgxpool.ParseConfig(server.URL(name))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 12
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close() // hangs if a connection is still in use
		if _, err := admin.Exec(ctx, "DROP DATABASE "+name); err != nil {
			t.Errorf("somebody is still connected: %v", err)
		}
	})
	if c.New == nil || c.Settings == "" || c.Version == "" {
		t.Errorf("incomplete: %+v", c)
	}
	s, err := c.New(system.Options{
		URL: server.URL(name), Pool: pool, Slots: 8, Steps: steps, OnStep: onStep, Lease: lease,
		Payload: []byte(`{"order": 17, "note": "` + strings.Repeat("x", 170) + `"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
