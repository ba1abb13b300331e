package engine_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pglocal"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

func hasProblem(h engine.Health, what string) bool {
	return slices.ContainsFunc(h.Problems, func(p engine.Problem) bool {
		return p.What == what && !p.Since.IsZero() && p.Detail != ""
	})
}

// probe is what a platform sees.
func probe(t testing.TB, serve http.HandlerFunc) (int, engine.Health) {
	t.Helper()
	rec := httptest.NewRecorder()
	serve(rec, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil))
	var h engine.Health
	if err := json.Unmarshal(rec.Body.Bytes(), &h); err != nil {
		t.Fatal(err)
	}
	return rec.Code, h
}

// A worker whose database goes away is alive and not ready, says since when, and
// is well by itself when the database is back. A listener alone that is lost is
// told of, and holds up nobody.
func TestHealthDatabase(t *testing.T) {
	t.Parallel()
	server := pgtest.Own(t, pglocal.Options{})
	pool := effPool(t, pgtest.DatabaseOn(t, server))
	w := steps.Declare[int, int]("healthy")
	e := effEngine(t, pool, engine.Config{Session: time.Second, Workflows: []steps.Definition{w.Of(steps.New("s", same))}})
	if h := e.Health(context.Background()); !h.Live || !h.Ready || len(h.Problems) != 0 {
		t.Fatalf("without Work: %+v", h)
	}
	work(t, e)
	effSuccess(t, e, effStart(t, e, w, 1))
	effUntil(t, "it is well", func() bool { h := e.Health(context.Background()); return h.Live && h.Ready && len(h.Problems) == 0 })
	server.Kill()
	effUntil(t, "the loss of the database is seen", func() bool {
		h := e.Health(context.Background())
		return h.Live && !h.Ready && hasProblem(h, "database") && hasProblem(h, "listener") && hasProblem(h, "session")
	})
	code, first := probe(t, e.ServeReady)
	if code != http.StatusServiceUnavailable {
		t.Errorf("ready: %d", code)
	}
	if code, _ := probe(t, e.ServeLive); code != http.StatusOK {
		t.Errorf("live: %d", code)
	}
	if _, second := probe(t, e.ServeReady); !second.Problems[0].Since.Equal(first.Problems[0].Since) {
		t.Errorf("since %v, and then since %v", first.Problems[0].Since, second.Problems[0].Since)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	effUntil(t, "it is well again", func() bool {
		code, h := probe(t, e.ServeReady)
		return code == http.StatusOK && len(h.Problems) == 0
	})
	effSuccess(t, e, effStart(t, e, w, 1))
}

// Claims that fail while the rest works, a clock that goes back, a drain.
func TestHealthWorker(t *testing.T) {
	t.Parallel()
	pool, proxy := effProxy(t, pgtest.Database(t))
	w := steps.Declare[int, int]("ailing")
	began, done := make(chan struct{}), make(chan struct{})
	e := effEngine(t, pool, engine.Config{Session: time.Second, NoListen: true, Workflows: []steps.Definition{w.Of(steps.New("s", func(_ context.Context, n int) (int, error) {
		close(began)
		<-done
		return n, nil
	}))}})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	proxy.OnExecute(func(sql string) pgproxy.Action {
		if effStatement(sql, "Claim") {
			return pgproxy.CutBefore
		}
		return pgproxy.Pass
	})
	r := effStart(t, e, w, 1)
	go func() { ended <- e.Work(ctx) }()
	effUntil(t, "the claims fail", func() bool {
		h := e.Health(context.Background())
		return h.Live && !h.Ready && hasProblem(h, "claimer")
	})
	proxy.OnExecute(nil)
	effSignal(t, "the body", began)
	effUntil(t, "it is well", func() bool { h := e.Health(context.Background()); return h.Ready && len(h.Problems) == 0 })

	shift := func(by string) {
		effExec(t, pool, "CREATE OR REPLACE FUNCTION pawl.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp()"+by+"'")
	}
	shift(" - interval ''1 hour''")
	effUntil(t, "the clock went back", func() bool { h := e.Health(context.Background()); return h.Ready && hasProblem(h, "clock") })
	shift("")
	effUntil(t, "it has caught up", func() bool { return len(e.Health(context.Background()).Problems) == 0 })

	stop()
	effUntil(t, "it drains", func() bool {
		h := e.Health(context.Background())
		return h.Live && !h.Ready && hasProblem(h, "draining")
	})
	close(done)
	if err := effSignal(t, "Work", ended); err != nil {
		t.Fatal(err)
	}
	if h := e.Health(context.Background()); !h.Ready {
		t.Errorf("after Work: %+v", h)
	}
	if got := effGet(t, e, r.ID).State; got != engine.Succeeded {
		t.Error(got)
	}
}

// A clock that goes back before the first pulse, or while the session is lost, is noticed.
func TestHealthClock(t *testing.T) {
	t.Parallel()
	for name, pulsed := range map[string]bool{"before the first pulse": false, "while the session is lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, proxy := effProxy(t, pgtest.Database(t))
			w := steps.Declare[int, int]("timed")
			e := effEngine(t, pool, engine.Config{Session: time.Second, NoListen: true, Workflows: []steps.Definition{w.Of(steps.New("s", same))}})
			pulses := make(chan struct{}, 1000)
			watch := func(a pgproxy.Action) {
				proxy.OnExecute(func(sql string) pgproxy.Action {
					if !effStatement(sql, "Pulse") {
						return pgproxy.Pass
					}
					pulses <- struct{}{}
					return a
				})
			}
			if pulsed {
				watch(pgproxy.Pass)
			} else {
				watch(pgproxy.CutBefore)
			}
			work(t, e)
			for range 3 { // the answer to one was read before the next was asked
				effSignal(t, "a pulse", pulses)
			}
			watch(pgproxy.CutBefore)
			effExec(t, pool, "CREATE OR REPLACE FUNCTION pawl.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp() - interval ''1 hour'''")
			if pulsed {
				effExec(t, pool, "UPDATE pawl.session SET closed_at = pawl.now()")
			}
			proxy.OnExecute(nil)
			effUntil(t, "the clock went back", func() bool { return hasProblem(e.Health(context.Background()), "clock") })
		})
	}
}
