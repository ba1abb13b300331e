package engine_test

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/steps"
)

// effPatience is for what takes moments on a machine at rest.
const effPatience = 90 * time.Second

// person acts in these tests.
var effPerson = engine.By{Actor: "ada", Reason: "asked the provider"}

// effPool is a pool of its own on a database: an engine's listener keeps one of
// its connections.
func effPool(t testing.TB, url string) *pgxpool.Pool { return poolOf(t, url, 8) }

// poolOf is one of so many connections.
func poolOf(t testing.TB, url string, conns int32) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	c.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// effProxy is a pool through a proxy that can break it.
func effProxy(t testing.TB, dsn string) (*pgxpool.Pool, *pgproxy.Proxy) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	p, err := pgproxy.New(net.JoinHostPort(u.Hostname(), u.Port()))
	if err != nil {
		t.Fatal(err)
	}
	pool := effPool(t, p.URL(dsn))
	t.Cleanup(p.Close)
	return pool, p
}

// effStatement tells whether SQL is the engine's statement of that name.
func effStatement(sql, name string) bool { return strings.HasPrefix(sql, "-- name: "+name+" ") }

func effEngine(t testing.TB, pool *pgxpool.Pool, c engine.Config) *engine.Engine {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	e, err := engine.New(context.Background(), pool, c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func effStart[I, O any](t testing.TB, e *engine.Engine, w steps.Workflow[I, O], in I, opts ...engine.StartOption) engine.Run[O] {
	t.Helper()
	r, err := engine.Start(context.Background(), e, w, in, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// effUntil waits for a condition.
func effUntil(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(effPatience); !holds(); time.Sleep(15 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// effSignal waits for a channel.
func effSignal[T any](t testing.TB, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(effPatience):
		t.Fatalf("waited in vain: %s", what)
	}
	return v
}

func effGet(t testing.TB, e *engine.Engine, id string) engine.RunInfo {
	t.Helper()
	info, err := e.Get(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// effState waits until the run is in one of the states.
func effState(t testing.TB, e *engine.Engine, id string, want ...engine.State) (info engine.RunInfo) {
	t.Helper()
	for deadline := time.Now().Add(effPatience); ; time.Sleep(15 * time.Millisecond) {
		if info = effGet(t, e, id); slices.Contains(want, info.State) {
			return info
		}
		if time.Now().After(deadline) {
			t.Fatalf("the run is %s, not one of %v\n%+v", info.State, want, info)
		}
	}
}

// effResult waits for the end of a run.
func effResult[O any](t testing.TB, e *engine.Engine, r engine.Run[O]) (O, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), effPatience)
	defer cancel()
	out, err := r.Wait(ctx)
	if ctx.Err() != nil {
		t.Fatalf("%v\n%+v", err, effGet(t, e, r.ID))
	}
	return out, err
}

// effSuccess waits for a run's success.
func effSuccess[O any](t testing.TB, e *engine.Engine, r engine.Run[O]) O {
	t.Helper()
	out, err := effResult(t, e, r)
	if err != nil {
		t.Fatalf("%v\n%+v", err, effGet(t, e, r.ID))
	}
	return out
}

// effRows are the rows of a run's history with that event.
func effRows(info engine.RunInfo, event string) (rows []engine.Transition) {
	for _, h := range info.History {
		if h.Event == event {
			rows = append(rows, h)
		}
	}
	return rows
}

func effEvents(info engine.RunInfo) (events []string) {
	for _, h := range info.History {
		events = append(events, h.Event)
	}
	return events
}

func effExec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) int64 {
	t.Helper()
	tag, err := pool.Exec(context.Background(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	return tag.RowsAffected()
}

func effScan[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (v T) {
	t.Helper()
	if err := pool.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// effHurry makes what waits for its backoff due now: the delays are the
// database's to keep and ours to skip.
func effHurry(t testing.TB, pool *pgxpool.Pool, id string) {
	t.Helper()
	effExec(t, pool, "UPDATE pawl.job SET due_at = pawl.now() WHERE run_id = $1 AND state = 'pending' AND due_at > pawl.now()", id)
	effExec(t, pool, "SELECT pg_notify('pawl', 'w')")
}

// effHurried hurries a run until it is in one of the states.
func effHurried(t testing.TB, pool *pgxpool.Pool, e *engine.Engine, id string, want ...engine.State) (info engine.RunInfo) {
	t.Helper()
	effUntil(t, "the run's state", func() bool {
		effHurry(t, pool, id)
		info = effGet(t, e, id)
		return slices.Contains(want, info.State)
	})
	return info
}

// effLog is what a logger has written.
type effLog struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *effLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *effLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
