package engine_test

import (
	"context"
	"fmt"
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
)

// envPatience is for conditions that take milliseconds on a machine at rest.
const envPatience = 90 * time.Second

// envLog is a logger that a test can ask what has been said.
type envLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *envLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *envLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *envLog) WithGroup(string) slog.Handler            { return l }
func (l *envLog) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += fmt.Sprintf(" %s=%v", a.Key, a.Value); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

func (l *envLog) logger() *slog.Logger { return slog.New(l) }

// said counts the lines that hold text.
func (l *envLog) said(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (l *envLog) last(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines[max(0, len(l.lines)-n):], "\n")
}

// envPool is a pool on a database, set up by the test.
func envPool(t testing.TB, dsn string, set ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range set {
		s(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// envProxied is a pool whose network the test can break.
func envProxied(t testing.TB, dsn string) (*pgxpool.Pool, *pgproxy.Proxy) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	p, err := pgproxy.New(net.JoinHostPort(u.Hostname(), u.Port()))
	if err != nil {
		t.Fatal(err)
	}
	pool := envPool(t, p.URL(dsn))
	t.Cleanup(p.Close) // before the pool, which would wait for a black hole
	return pool, p
}

// envStatement tells whether SQL is one of the engine's statements.
func envStatement(sql string, names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(sql, "-- name: "+n+" ") })
}

func envEngine(t testing.TB, pool *pgxpool.Pool, c engine.Config) *engine.Engine {
	t.Helper()
	e, err := engine.New(context.Background(), pool, c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}
