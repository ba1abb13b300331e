package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Health is how an engine of this process is. It is well by itself again when
// the cause is gone: nothing has to be reset.
type Health struct {
	// Live is false when the process itself does not move any more, which a restart mends.
	Live bool `json:"live"`
	// Ready is true when runs can be started, and worked on if Work was called:
	// the database answers, and Work neither drains nor has lost its session.
	Ready bool `json:"ready"`
	// Problems tell what is wrong, the oldest first; also what only slows work down.
	Problems []Problem `json:"problems"`
}

// Problem is one thing that is wrong.
type Problem struct {
	What   string    `json:"what"`   // database, claimer, pulse, session, listener, clock, draining
	Since  time.Time `json:"since"`  // as far as was noticed, by this process's clock
	Detail string    `json:"detail"` // and what follows from it
}

// The limits of what is well.
const (
	askedWithin = 2 * time.Second  // the database has to answer
	stuckAfter  = 90 * time.Second // more than a loop waits for a connection and for an answer, one after the other
	listenAgain = 5 * time.Second  // without a connection, which a restart of the server takes too
)

// health keeps since when each problem has been known, and who works.
type health struct {
	mu      sync.Mutex
	workers []*worker
	since   map[string]time.Time
}

func (h *health) add(w *worker) (remove func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.workers = append(h.workers, w)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.workers = slices.DeleteFunc(h.workers, func(x *worker) bool { return x == w })
	}
}

func (h *health) working() []*worker {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.workers)
}

// dated gives each problem the time at which it was seen first.
func (h *health) dated(ps []Problem) []Problem {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	since := map[string]time.Time{}
	for i, p := range ps {
		at, known := h.since[p.What]
		if !known {
			at = now
		}
		if !p.Since.IsZero() && p.Since.Before(at) {
			at = p.Since
		}
		since[p.What], ps[i].Since = at, at
	}
	h.since = since
	slices.SortStableFunc(ps, func(a, b Problem) int { return a.Since.Compare(b.Since) })
	return ps
}

// Health asks the database (one round trip, two seconds at most) and looks at
// the loops of Work, if that was called. It changes nothing.
func (e *Engine) Health(ctx context.Context) Health {
	h := Health{Live: true, Ready: true, Problems: []Problem{}}
	add := func(what, detail string, since time.Time) {
		h.Problems = append(h.Problems, Problem{What: what, Detail: detail, Since: since})
	}
	asked, cancel := context.WithTimeout(ctx, askedWithin)
	defer cancel()
	if err := e.pool.Ping(asked); err != nil {
		h.Ready = false
		add("database", "it does not answer: "+err.Error()+"; leases lapse and steps wait until it does", time.Time{})
	}
	for _, w := range e.health.working() {
		if d := w.claimer.stuck(); d > stuckAfter {
			h.Live, h.Ready = false, false
			add("claimer", fmt.Sprintf("it has been at one claim for %v: nothing new is worked on", d.Round(time.Second)), time.Now().Add(-d))
		}
		if d := w.pulse.stuck(); d > stuckAfter {
			h.Live, h.Ready = false, false
			add("pulse", fmt.Sprintf("it has been at one heartbeat for %v", d.Round(time.Second)), time.Now().Add(-d))
		}
		if at := w.failing.Load(); at != nil {
			h.Ready = false
			add("claimer", "claims fail: "+at.err.Error(), at.since)
		}
		if w.sessionLost.Load() || w.sessionTrust() <= 0 {
			h.Ready = false
			add("session", "it could not be renewed in time: its jobs are given up, and a new one follows when the database answers", time.Time{})
		}
		if w.draining.Load() {
			h.Ready = false
			add("draining", "the process is stopping: nothing new is claimed", time.Time{})
		}
	}
	if at := e.clock.ails(); at != nil {
		add("clock", at.err.Error(), at.since)
	}
	if since := e.listener.deaf(); !since.IsZero() && time.Since(since) > listenAgain {
		add("listener", "it has no connection: work is found by polling alone, up to three quarters of Config.Session later", since)
	}
	h.Problems = e.health.dated(h.Problems)
	return h
}

// ServeLive answers 200 while the process moves, 503 when a restart is what
// helps; a database that is away is not. The body is Health as JSON.
func (e *Engine) ServeLive(w http.ResponseWriter, r *http.Request) {
	h := e.Health(r.Context())
	h.serve(w, h.Live)
}

// ServeReady answers 200 while runs can be started and worked on, else 503.
// The body is Health as JSON.
func (e *Engine) ServeReady(w http.ResponseWriter, r *http.Request) {
	h := e.Health(r.Context())
	h.serve(w, h.Ready)
}

func (h Health) serve(w http.ResponseWriter, well bool) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !well {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(h) // who asked has gone
}

// ailment is something that has been wrong since then.
type ailment struct {
	since time.Time
	err   error
}

// suffers notes an error, keeping since when, or that all is well.
func suffers(load func() *ailment, store func(*ailment), err error) {
	switch was := load(); {
	case err == nil && was != nil:
		store(nil)
	case err != nil && was == nil:
		store(&ailment{time.Now(), err})
	}
}
