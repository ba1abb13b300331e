//go:build unix

package pawl_test

import (
	"slices"
	"testing"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/fault"
)

// What a run that was killed at each point goes through.
var storyOfPoint = map[string][]string{
	fault.BeforeClaim:  {"charge completed by worker, attempt 1", "ship completed by worker, attempt 1"},
	fault.AfterClaim:   retried,
	fault.BeforeBegin:  retried,
	fault.AfterBegin:   repeated,
	fault.BeforeBody:   repeated,
	fault.AfterBody:    settled,
	fault.BeforeCommit: settled,
	fault.AfterCommit: {"charge completed by worker, attempt 1", "ship lapsed by recovery, attempt 1",
		"ship completed by worker, attempt 2"},
}

var (
	// The body has not begun: an ordinary retry.
	retried = []string{"charge lapsed by recovery, attempt 1", "charge completed by worker, attempt 2", "ship completed by worker, attempt 1"}
	// Between the record that the body begins and its request nothing has
	// happened; but that only the target knows.
	repeated = []string{"charge uncertain by recovery, attempt 1", "charge asking by reconciler, attempt 1",
		"charge repeat by reconciler, attempt 1", "charge completed by worker, attempt 2", "ship completed by worker, attempt 1"}
	settled = []string{"charge uncertain by recovery, attempt 1", "charge asking by reconciler, attempt 1",
		"charge settled by reconciler, attempt 1", "ship completed by worker, attempt 1"}
	// A question that was cut off is asked again.
	settledLater = []string{"charge uncertain by recovery, attempt 1", "charge asking by reconciler, attempt 1",
		"charge uncertain by recovery, attempt 1", "charge asking by reconciler, attempt 1",
		"charge settled by reconciler, attempt 1", "ship completed by worker, attempt 1"}
	// Its answer is durable, and only what comes behind it is tried again.
	settledFirst = []string{"charge uncertain by recovery, attempt 1", "charge asking by reconciler, attempt 1",
		"charge settled by reconciler, attempt 1", "ship lapsed by recovery, attempt 1", "ship completed by worker, attempt 2"}
)

// crashEveryPoint kills a worker at every point that a charge with a look-up
// passes. Each is charged once, by one request, and what may have happened was
// found out.
func crashEveryPoint(t *testing.T) {
	var known []string
	for _, label := range fault.Labels {
		known = append(known, "lookup-"+label)
	}
	s := newStage(t, known...)
	s.target.remember = true
	runs, doomed := map[string]engine.Run[receipt]{}, map[string]*process{}
	for _, label := range fault.Labels {
		runs[label] = s.start("lookup-"+label, label)
		doomed[label] = s.spawn(role{Name: label, Queues: []string{label}, Kill: label})
	}
	for _, p := range doomed {
		p.died(t)
	}
	s.worker(role{Name: "survivor"})
	for _, label := range fault.Labels {
		r, by := runs[label], "survivor"
		if out := s.wait(r); out != (receipt{label, 1}) {
			t.Errorf("%s: the run gives %+v", label, out)
		}
		if slices.Contains([]string{fault.AfterBody, fault.BeforeCommit, fault.AfterCommit}, label) {
			by = label
		}
		s.charged(label, 1, by)
		s.expect(r.ID, storyOfPoint[label]...)
		if h := s.get(r.ID).History; h[0].Event == "uncertain" {
			s.asksLongEnough(h)
		}
	}
}

// asksLongEnough fails if "it never happened" was believed while a request
// could still arrive.
func (s *stage) asksLongEnough(history []engine.Transition) {
	s.Helper()
	for _, h := range history {
		if waited := h.GrantedAt.Sub(history[0].EndedAt); h.Event == "repeat" && waited < lateArrival {
			s.Errorf("not found counted %v after the outcome became unknown", waited)
		}
	}
}

// crashEveryQuestion kills the worker that asks, at every point that a
// question passes.
func crashEveryQuestion(t *testing.T) {
	labels := []string{fault.BeforeClaim, fault.AfterClaim, fault.BeforeBody, fault.AfterBody, fault.BeforeCommit, fault.AfterCommit}
	known := []string{"lookup-" + fault.BeforeBegin} // a queue that has no run: no question begins
	for _, label := range labels {
		known = append(known, "lookup-"+label)
	}
	s := newStage(t, known...)
	// All have their effect, and nobody hears of it.
	done := s.target.holdAfter(func(c call) bool { return c.Step == "charge" && c.Worker == "first" })
	runs, doomed := map[string]engine.Run[receipt]{}, map[string]*process{}
	for _, label := range labels {
		runs[label] = s.start("lookup-"+label, label)
	}
	first := s.worker(role{Name: "first"})
	for range labels {
		done.wait(t)
	}
	first.kill(t)
	// It takes back what the first held, and has nothing to ask itself.
	s.worker(role{Name: "bystander", Queues: []string{fault.BeforeBegin}})
	for _, label := range labels {
		s.until("the effect is uncertain", func() bool { return len(s.get(runs[label].ID).History) >= 2 })
	}
	for _, label := range labels {
		doomed[label] = s.spawn(role{Name: label, Queues: []string{label}, Kill: label})
	}
	for _, p := range doomed {
		p.died(t)
	}
	s.worker(role{Name: "survivor"})
	for _, label := range labels {
		r := runs[label]
		if out := s.wait(r); out != (receipt{label, 1}) {
			t.Errorf("%s: the run gives %+v", label, out)
		}
		s.charged(label, 1, "first")
		story, asked := settledLater, 1
		switch label {
		case fault.BeforeClaim:
			story = settled
		case fault.AfterBody, fault.BeforeCommit:
			asked = 2
		case fault.AfterCommit:
			story = settledFirst
		}
		s.expect(r.ID, story...)
		key := s.target.of("effects", at("charge", label))[0].Key
		if qs := s.target.of("look-ups", func(c call) bool { return c.Key == key }); len(qs) != asked {
			t.Errorf("%s: asked %d times, want %d", label, len(qs), asked)
		}
	}
}
