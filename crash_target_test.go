//go:build unix

package pawl_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"
)

// target is the world outside: an HTTP server that counts effects. It lives in
// the test's process, so no kill of a worker makes it forget anything.
//
//	POST /effects/{step}/{order}  an effect; a remembered key has it once
//	GET  /effects?key=…           the look-up
//	POST /at/{label}              a worker passes a point at which it is to be held
//	POST /notes/{step}/{order}    what a body wants the test to know
type target struct {
	server *httptest.Server
	closed chan struct{}
	// observe is called for each effect before anything else happens, and says
	// what the database knew then.
	observe func(call) sight

	mu       sync.Mutex
	calls    []call
	receipts map[string]receipt // by key: the memory, and what a look-up finds
	remember bool               // whether a repeated key is answered from memory,
	forgets  func(call) bool    // but for these; nil: none
	effects  map[string]int     // by step/order
	holds    []*hold
	refuse   func(call) int    // the status of a refusal; 0: none
	manners  map[string]manner // by order
	shown    map[manner]int
}

// call is one request that has arrived.
type call struct {
	Kind, Step, Order string // kind: effects, look-ups, at, notes
	Key, Worker       string
	Attempt           int
	Text              string
	Seen              sight
}

// receipt is the answer to an effect.
type receipt struct {
	Order string
	No    int // of the effects of that step and order
}

func newTarget(t testing.TB) *target {
	g := &target{closed: make(chan struct{}), receipts: map[string]receipt{}, effects: map[string]int{}, shown: map[manner]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /effects/{step}/{order}", g.effect)
	mux.HandleFunc("GET /effects", g.lookUp)
	mux.HandleFunc("POST /at/{step}", g.passing)
	mux.HandleFunc("POST /notes/{step}/{order}", g.passing)
	g.server = httptest.NewServer(mux)
	t.Cleanup(func() {
		close(g.closed)
		g.server.CloseClientConnections()
		g.server.Close()
	})
	return g
}

func (g *target) arrived(r *http.Request, kind string) call {
	attempt, _ := strconv.Atoi(r.Header.Get("Pawl-Attempt"))
	c := call{Kind: kind, Step: r.PathValue("step"), Order: r.PathValue("order"), Key: r.Header.Get(keyHeader),
		Worker: r.Header.Get("Pawl-Worker"), Attempt: attempt, Text: r.Header.Get("Pawl-Note")}
	if g.observe != nil {
		c.Seen = g.observe(c)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, c)
	return c
}

func (g *target) effect(w http.ResponseWriter, r *http.Request) {
	c := g.arrived(r, "effects")
	if !g.held(r, c, true) {
		return
	}
	how := g.treats(c)
	if !how.before(g, w, r) {
		return
	}
	g.mu.Lock()
	if g.refuse != nil {
		if status := g.refuse(c); status != 0 {
			g.mu.Unlock()
			w.WriteHeader(status)
			return
		}
	}
	answer, known := g.receipts[c.Key]
	if !known || !g.remember || c.Key == "" || g.forgets != nil && g.forgets(c) {
		g.effects[c.Step+"/"+c.Order]++
		answer = receipt{c.Order, g.effects[c.Step+"/"+c.Order]}
		g.receipts[c.Key] = answer
	}
	g.mu.Unlock()
	if g.held(r, c, false) && how.after(g, w, r) {
		_ = json.NewEncoder(w).Encode(answer)
	}
}

func (g *target) lookUp(w http.ResponseWriter, r *http.Request) {
	c := g.arrived(r, "look-ups")
	if !g.held(r, c, true) {
		return
	}
	g.mu.Lock()
	answer, known := g.receipts[c.Key]
	g.mu.Unlock()
	if !known {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (g *target) passing(_ http.ResponseWriter, r *http.Request) {
	kind := "notes"
	if r.PathValue("order") == "" {
		kind = "at"
	}
	g.held(r, g.arrived(r, kind), true)
}

// hold keeps the requests that match waiting: before their effect or, with
// after, behind it and before the answer.
type hold struct {
	g        *target
	match    func(call) bool
	before   bool
	came     chan call
	released chan struct{}
	once     sync.Once
}

func (g *target) hold(match func(call) bool) *hold      { return g.holdAt(match, true) }
func (g *target) holdAfter(match func(call) bool) *hold { return g.holdAt(match, false) }

func (g *target) holdAt(match func(call) bool, before bool) *hold {
	h := &hold{g: g, match: match, before: before, came: make(chan call, 10_000), released: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds = append(g.holds, h)
	return h
}

func (h *hold) release() { h.once.Do(func() { close(h.released) }) }

// wait returns the next request that is held.
func (h *hold) wait(t testing.TB) call {
	t.Helper()
	select {
	case c := <-h.came:
		return c
	case <-time.After(patience):
		t.Fatalf("no request that is to be held has come within %v", patience)
		return call{}
	}
}

// held waits behind all holds that match; false: who asked has gone.
func (g *target) held(r *http.Request, c call, before bool) bool {
	g.mu.Lock()
	holds := g.holds
	g.mu.Unlock()
	for _, h := range holds {
		if h.before != before || !h.match(c) {
			continue
		}
		h.came <- c
		select {
		case <-h.released:
		case <-g.closed:
			return false
		case <-r.Context().Done():
			return false
		}
	}
	return true
}

// refuses answers effects with a status, where that is not 0.
func (g *target) refuses(status func(call) int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse = status
}

// enough tells bodies that go on and on that they may end.
func (g *target) enough() { g.refuses(func(call) int { return http.StatusGone }) }

// of returns the calls of a kind that match, in the order of their arrival.
func (g *target) of(kind string, match func(call) bool) (cs []call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.calls {
		if c.Kind == kind && match(c) {
			cs = append(cs, c)
		}
	}
	return cs
}

// count is how many effects a step had for an order.
func (g *target) count(step, order string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.effects[step+"/"+order]
}

// at matches a step and an order; an empty one is any.
func at(step, order string) func(call) bool {
	return func(c call) bool { return (step == "" || c.Step == step) && (order == "" || c.Order == order) }
}
