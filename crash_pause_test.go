//go:build unix

package pawl_test

import (
	"encoding/json"
	"testing"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/fault"
)

// crashPaused: process A stands still, B takes over and completes the step; A
// wakes up, and what it reports then changes no row. Of an effect it is kept
// as evidence.
func crashPaused(t *testing.T) {
	for _, kind := range []string{"plain", "idempotent", "lookup", "manual"} {
		t.Run(kind+"_inside_the_step", func(t *testing.T) { t.Parallel(); crashPausedAt(t, kind, "") })
		t.Run(kind+"_before_the_write", func(t *testing.T) { t.Parallel(); crashPausedAt(t, kind, fault.BeforeCommit) })
	}
}

// crashPausedAt pauses A behind its effect, inside the body or, with a label,
// there: then its write is sent for sure when it wakes up.
func crashPausedAt(t *testing.T, kind, label string) {
	s := newStage(t, kind)
	s.target.remember = kind == "idempotent"
	var here *hold
	if label != "" {
		here = s.target.hold(at(label, ""))
	} else {
		here = s.target.holdAfter(func(c call) bool { return c.Step == "charge" && c.Worker == "a" })
	}
	there := s.target.hold(at("ship", ""))
	a := s.worker(role{Name: "a", Hold: []string{label}})
	r := s.start(kind, "x")
	here.wait(t)
	a.pause(t)
	s.worker(role{Name: "b"})
	if kind == "manual" { // nobody takes it over: a person is asked
		s.until("the effect is uncertain", func() bool { return s.get(r.ID).State == engine.Uncertain })
	} else if c := there.wait(t); c.Worker != "b" { // B has completed the step, and holds the next
		t.Fatalf("%s ships", c.Worker)
	}
	before := s.rows(r.ID)

	here.release()
	a.resume(t)
	if kind != "plain" {
		s.until("the late result is kept", func() bool { return len(s.get(r.ID).Evidence) > 0 })
	}
	a.stop(t) // all that it had to write is written
	if after := s.rows(r.ID); after != before {
		t.Errorf("the late worker has changed rows:\n%s\nwere\n%s", after, before)
	}
	info := s.get(r.ID)
	switch {
	case kind == "plain" && len(info.Evidence) != 0:
		t.Errorf("evidence of a step without an effect: %+v", info.Evidence)
	case kind != "plain" && (len(info.Evidence) != 1 || info.Evidence[0].Step != "charge" || info.Evidence[0].Attempt != 1):
		t.Errorf("the evidence is %+v", info.Evidence)
	case kind != "plain" && label != "": // the body had returned: its output is what came late
		var out receipt
		if err := json.Unmarshal(info.Evidence[0].Output, &out); err != nil || out != (receipt{"x", 1}) {
			t.Errorf("the evidence is %+v", info.Evidence)
		}
	}

	if kind == "manual" {
		if err := s.e.Resolve(t.Context(), r.ID, engine.By{Actor: "ann", Reason: "saw it"}, engine.ItHappened(receipt{"x", 1}, "statement")); err != nil {
			t.Fatal(err)
		}
		there.wait(t)
	}
	there.release()
	want := receipt{"x", 1}
	if kind == "plain" { // which nobody has promised to have once
		want.No = 2
	}
	if got := s.wait(r); got != want {
		t.Errorf("the run gives %+v, want %+v", got, want)
	}
	if n := s.target.count("charge", "x"); n != want.No {
		t.Errorf("%d effects", n)
	}
}
