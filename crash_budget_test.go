//go:build unix

package pawl_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/fault"
)

// longPlaces is how many places the long step has: more than it is killed at.
const longPlaces = kills + 2

const kills = 30

// hasty is the session of workers that die one after another. If one lapses on
// a loaded machine while its worker lives, that changes nothing there.
const hasty = time.Second

// crashExhausted: whatever budget is spent, the job is dead and seen to be, all
// that it needs is kept, and a person can try it again.
func crashExhausted(t *testing.T) {
	t.Run("attempts", func(t *testing.T) { t.Parallel(); crashAttempts(t) })
	t.Run("lapses", func(t *testing.T) { t.Parallel(); crashLapses(t) })
	t.Run("lapses_at_one_cursor", func(t *testing.T) { t.Parallel(); crashOneCursor(t) })
}

// dead checks what is to be seen of a run that has failed.
func (s *stage) dead(r engine.Run[receipt], step, code, reason string, attempt int) {
	s.Helper()
	failed := s.fails(r)
	if failed.Step != step || failed.Code != code || failed.Attempt != attempt || !strings.Contains(failed.Reason, reason) {
		s.Errorf("Wait says %+v", failed)
	}
	listed, err := s.e.List(s.Context(), engine.Filter{States: []engine.State{engine.Failed}, Step: step, Code: code})
	if err != nil || len(listed) != 1 || listed[0].ID != r.ID {
		s.Errorf("listed as failed: %+v, %v", listed, err)
	}
	info := s.get(r.ID)
	if len(info.Jobs) != 1 || len(info.History) == 0 {
		s.Fatalf("the run is %+v", info)
	}
	last := info.History[len(info.History)-1]
	if info.State != engine.Failed || info.Step != step || info.Code != code || info.Jobs[0].State != "dead" || string(info.Input) != `{"Name":"x"}` ||
		last.Event != "dead" || last.Code != code || !strings.Contains(last.Reason, reason) {
		s.Errorf("the run is %+v", info)
	}
}

// replay tries a dead run again: the same job, with its history before it.
func (s *stage) replay(r engine.Run[receipt]) {
	s.Helper()
	before := s.get(r.ID)
	if err := s.e.Replay(s.Context(), r.ID, engine.By{Actor: "ann", Reason: "the cause is mended"}); err != nil {
		s.Fatal(err)
	}
	s.wait(r)
	after := s.get(r.ID)
	for i, h := range before.History {
		if g := after.History[i]; g.Job != before.Jobs[0].ID || g.Token != h.Token || g.Event != h.Event || g.Reason != h.Reason || !slices.Equal(g.Output, h.Output) {
			s.Errorf("the replay has changed the history: %+v was %+v", g, h)
		}
	}
	if h := after.History[len(before.History)]; h.Event != "replayed" || h.Actor != "ann" {
		s.Errorf("the replay is recorded as %+v", h)
	}
}

func crashAttempts(t *testing.T) {
	s := newStage(t, "fragile")
	s.target.refuses(func(c call) int {
		if c.Step == "fragile" {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	s.worker(role{Name: "a", Session: 30 * time.Second})
	r := s.start("fragile", "x")
	s.dead(r, "fragile", "FRAGILE", "the target has broken it", 3)
	s.expect(r.ID, "prepare completed by worker, attempt 1", "fragile retried by worker, attempt 1", "fragile retried by worker, attempt 2",
		"fragile dead by worker, attempt 3")
	s.target.refuses(nil)
	s.replay(r)
	if n := s.target.count("prepare", "x"); n != 1 { // its output was there
		t.Errorf("the step before was run %d times", n)
	}
}

// Five processes die of one job.
func crashLapses(t *testing.T) {
	s := newStage(t, "short")
	r := s.start("short", "x")
	for i := range 5 {
		s.spawn(role{Name: fmt.Sprint("a", i), Kill: fault.BeforeBody}).died(t)
	}
	s.worker(role{Name: "b"})
	s.dead(r, "call", "LEASE_EXPIRED", "session", 5)
	s.expect(r.ID, "call lapsed by recovery, attempt 1", "call lapsed by recovery, attempt 2", "call lapsed by recovery, attempt 3",
		"call lapsed by recovery, attempt 4", "call dead by recovery, attempt 5")
	if cs := s.target.of("effects", at("call", "")); len(cs) != 0 {
		t.Errorf("the target was called: %+v", cs)
	}
	s.replay(r)
}

// A long step whose worker is killed five times at one place is dead there,
// and a replay begins there.
func crashOneCursor(t *testing.T) {
	s := newStage(t, "long")
	here := s.target.hold(at("place-3", ""))
	r := s.start("long", "x")
	for i := range 5 {
		// Long enough not to lapse by itself on a loaded machine: that would count too.
		a := s.spawn(role{Name: fmt.Sprint("a", i), Session: 5 * time.Second})
		here.wait(t)
		a.kill(t)
	}
	s.worker(role{Name: "b"})
	s.dead(r, "long", "LEASE_EXPIRED", "session", 5)
	here.release()
	s.replay(r)
	s.eachPlaceOnce(map[int]int{3: 6})
}

// eachPlaceOnce fails if an effect of the long step is missing or was had more
// than once; requests says where there were more requests than one.
func (s *stage) eachPlaceOnce(requests map[int]int) {
	s.Helper()
	for n := range longPlaces {
		step := fmt.Sprint("place-", n)
		if got := s.target.count(step, "x"); got != 1 {
			s.Errorf("%s had %d effects", step, got)
		}
		if got, want := len(s.target.of("effects", at(step, "x"))), max(requests[n], 1); got != want {
			s.Errorf("%s had %d requests, want %d", step, got, want)
		}
	}
}

// crashKilledThirtyTimes: a long step whose worker is killed thirty times, each
// time one place further on, ends.
func crashKilledThirtyTimes(t *testing.T) {
	s := newStage(t, "long")
	r := s.start("long", "x")
	for n := range kills {
		here := s.target.hold(at(fmt.Sprint("place-", n+1), ""))
		a := s.spawn(role{Name: fmt.Sprint("a", n), Session: hasty})
		here.wait(t)
		a.kill(t)
		here.release()
	}
	s.worker(role{Name: "b"})
	s.wait(r)
	lapsed := 0
	for _, h := range s.get(r.ID).History {
		switch h.Event {
		case "lapsed":
			lapsed++
		case "completed":
		default:
			t.Errorf("it was %s by %s", h.Event, h.Writer)
		}
	}
	if lapsed < kills {
		t.Errorf("%d leases lapsed, %d workers were killed", lapsed, kills)
	}
	place := 0 // nothing that the cursor had passed was done again
	for _, c := range s.target.of("effects", at("", "x")) {
		var n int
		if _, err := fmt.Sscanf(c.Step, "place-%d", &n); err != nil || n != place && n != place+1 {
			t.Fatalf("%s came after place-%d, %v", c.Step, place, err)
		}
		place = n
	}
	if place != longPlaces-1 {
		t.Errorf("it ended at place %d", place)
	}
}
