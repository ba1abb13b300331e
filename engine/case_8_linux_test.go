package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pglocal"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

var halted = steps.Declare[int, int]("halted")

func haltedBy(_ context.Context, n int) (int, error) { return n + 1, nil }

// TestCase8 stops all processes of the server while a statement is on its way,
// for longer than the session and once for longer than the statement's own
// backstop, and lets them go on: connections hang, and the worker must not.
func TestCase8(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		during func(sql string) bool
		stop   time.Duration
		notice string // what the worker says of it
	}{
		"claim":  {func(sql string) bool { return envStatement(sql, "Claim") }, 17 * time.Second, "claiming; trying again"},
		"begin":  {func(sql string) bool { return strings.Contains(sql, "; SET LOCAL idle_in_transaction") }, 2 * time.Second, "the session could not be renewed"}, // around a user's code
		"commit": {func(sql string) bool { return envStatement(sql, "Transition") }, 2 * time.Second, "the session could not be renewed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Own(t, pglocal.Options{})
			dsn := pgtest.DatabaseOn(t, server)
			pool, proxy := envProxied(t, dsn)
			log := &envLog{}
			e := envEngine(t, pool, engine.Config{Session: time.Second, Logger: log.logger(), Workflows: []steps.Definition{
				halted.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
					in = steps.New("first", haltedBy).Do(f, in)
					return steps.NewTx("second", func(ctx context.Context, tx pgx.Tx, n int) (int, error) { return haltedBy(ctx, n) }).Do(f, in)
				})}})
			work(t, e)
			for i := range 10 { // it works, and the pool has connections
				if out := effSuccess(t, e, effStart(t, e, halted, i)); out != i+2 {
					t.Fatal(out)
				}
			}

			var armed, hit atomic.Bool
			stopped := make(chan struct{})
			armed.Store(true)
			proxy.OnExecute(func(sql string) pgproxy.Action {
				if c.during(sql) && armed.Swap(false) {
					hit.Store(true)
					signalServer(t, server, syscall.SIGSTOP)
					close(stopped)
				}
				return pgproxy.Pass
			})
			t.Cleanup(func() { signalServer(t, server, syscall.SIGCONT) }) // also when the test fails half-way
			runs := make(chan engine.Run[int], 1)
			go func() { // its start may hang with the server
				defer close(runs)
				if r, err := engine.Start(context.Background(), e, halted, 100); err == nil {
					runs <- r
				}
			}()
			select {
			case <-stopped:
			case <-time.After(envPatience):
				t.Fatal("the statement was never sent")
			}
			time.Sleep(c.stop) // the fault itself: how long the server stands still
			signalServer(t, server, syscall.SIGCONT)
			for r := range runs {
				if out := effSuccess(t, e, r); out != 102 {
					t.Error(out)
				}
			}
			for i := range 20 {
				if out := effSuccess(t, e, effStart(t, e, halted, i)); out != i+2 {
					t.Error(out)
				}
			}
			if !hit.Load() || log.said(c.notice) == 0 {
				t.Errorf("the fault did not fire, or nobody noticed:\n%s", log.last(20))
			}
		})
	}
}

// signalServer signals the postmaster first, so that it starts nothing new,
// and then its children.
func signalServer(t testing.TB, s *pglocal.Server, sig syscall.Signal) {
	postmaster := s.Pid()
	if postmaster == 0 {
		t.Error("the server is not there")
		return
	}
	pids := []int{postmaster}
	if err := syscall.Kill(postmaster, sig); err != nil {
		t.Error(err)
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state ppid …; the name may hold anything.
		_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[1] != strconv.Itoa(postmaster) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if err != nil {
			continue
		}
		pids = append(pids, pid)
		_ = syscall.Kill(pid, sig) // it may have ended meanwhile
	}
	if sig == syscall.SIGSTOP && len(pids) < 3 {
		t.Errorf("only %d processes of the server found", len(pids))
	}
}
