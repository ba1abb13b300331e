package schema_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/schema"
	"github.com/pawlworks/pawl/steps"
)

// linesOf keeps what is logged.
type linesOf struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *linesOf) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *linesOf) say(what string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), what)
}

// TestMigrateWhileAStepEnds: a migration that holds the tables for longer than
// the engine's statements wait. A step that ends meanwhile is written when the
// migration is over, its body called once.
func TestMigrateWhileAStepEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	apart := pgtest.Pool(t) // the engine needs its pool for itself
	config := apart.Config()
	config.ConnConfig.RuntimeParams["lock_timeout"] = "1s" // for statements that are only being prepared
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	c, held := conn(t, apart), conn(t, apart)
	gate, began := make(chan struct{}), make(chan struct{}, 10)
	open := sync.OnceFunc(func() { close(gate) })
	var calls atomic.Int64
	var log linesOf
	w := steps.Declare[int, int]("under-work")
	// A session that outlives the test: nobody else is to step in.
	e, err := engine.New(ctx, pool, engine.Config{Session: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil)), Workflows: []steps.Definition{
		w.Of(steps.New("step", func(_ context.Context, n int) (int, error) {
			calls.Add(1)
			began <- struct{}{}
			<-gate
			return n, nil
		}))}})
	if err != nil {
		t.Fatal(err)
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- e.Work(working) }()
	run, err := engine.Start(ctx, e, w, 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Exec(ctx, "SELECT pg_advisory_lock(41)"); err != nil {
		t.Fatal(err)
	}
	defer func() { // whatever has happened
		_, _ = held.Exec(context.Background(), "SELECT pg_advisory_unlock_all()")
		open()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	<-began
	migrated := make(chan error, 1)
	go func() {
		migrated <- schema.Apply(context.Background(), c, next(t, `
			ALTER TABLE pawl.job ADD COLUMN weight integer NOT NULL DEFAULT 1;
			ALTER TABLE pawl.run ADD COLUMN mood text NOT NULL DEFAULT 'good';
			ALTER TABLE pawl.history ADD COLUMN seen timestamptz;
			SELECT pg_advisory_xact_lock(41);`))
	}()
	until(t, "the migration holds the tables", func() bool {
		return value[bool](t, apart, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 41 AND NOT granted)")
	})
	open()
	until(t, "a write has waited in vain", func() bool { return log.say("writing finished steps") })
	if _, err := held.Exec(ctx, "SELECT pg_advisory_unlock(41)"); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Error(err)
	}
	if out, err := run.Wait(ctx); err != nil || out != 7 || calls.Load() != 1 {
		t.Errorf("got %d after %d calls, %v", out, calls.Load(), err)
	}
	if info, err := e.Get(ctx, run.ID); err != nil || len(info.History) != 1 || len(info.Evidence) != 0 {
		t.Errorf("%+v, %v", info, err)
	}
}

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(15 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
