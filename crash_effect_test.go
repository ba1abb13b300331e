//go:build unix

package pawl_test

import (
	"slices"
	"testing"

	"github.com/pawlworks/pawl/engine"
)

// crashAfterEffect: a process dies when its effect has happened and nobody has
// heard of it. What was declared holds, and the target counts one effect.
func crashAfterEffect(t *testing.T) {
	t.Run("idempotent", func(t *testing.T) { t.Parallel(); crashIdempotent(t) })
	t.Run("lookup", func(t *testing.T) { t.Parallel(); crashLookUp(t) })
	t.Run("manual", func(t *testing.T) { t.Parallel(); crashManual(t) })
}

// killedAfterEffect has the effect, kills its worker and starts another.
func (s *stage) killedAfterEffect(kind string) engine.Run[receipt] {
	s.Helper()
	done := s.target.holdAfter(func(c call) bool { return c.Step == "charge" && c.Worker == "a" })
	a := s.worker(role{Name: "a"})
	r := s.start(kind, "x")
	done.wait(s)
	a.kill(s)
	if n := s.target.count("charge", "x"); n != 1 {
		s.Fatalf("%d effects before the kill", n)
	}
	s.worker(role{Name: "b"})
	return r
}

// charged tells by whom the effect was asked for, and how often it took place.
func (s *stage) charged(name string, effects int, workers ...string) {
	s.Helper()
	var by, keys []string
	for _, c := range s.target.of("effects", at("charge", name)) {
		by, keys = append(by, c.Worker), append(keys, c.Key)
	}
	if n := s.target.count("charge", name); n != effects || !slices.Equal(by, workers) {
		s.Errorf("order %s: %d effects, asked for by %v; want %d, by %v", name, n, by, effects, workers)
	}
	if keys = slices.Compact(keys); len(keys) != 1 || keys[0] == "" {
		s.Errorf("order %s: the keys are %q", name, keys)
	}
}

// The same key again, and the target answers from memory.
func crashIdempotent(t *testing.T) {
	s := newStage(t, "idempotent")
	s.target.remember = true
	r := s.killedAfterEffect("idempotent")
	if out := s.wait(r); out != (receipt{"x", 1}) {
		t.Errorf("the run gives %+v", out)
	}
	s.charged("x", 1, "a", "b")
	s.expect(r.ID, "charge lapsed by recovery, attempt 1", "charge completed by worker, attempt 2", "ship completed by worker, attempt 1")
}

// The target has no memory of keys, so a second request would be a second
// effect: it is asked instead.
func crashLookUp(t *testing.T) {
	s := newStage(t, "lookup")
	asked := s.target.hold(func(c call) bool { return c.Kind == "look-ups" })
	r := s.killedAfterEffect("lookup")
	if c := asked.wait(t); c.Worker != "b" {
		t.Errorf("%s asks", c.Worker)
	}
	listed, err := s.e.List(t.Context(), engine.Filter{States: []engine.State{engine.Uncertain}})
	if info := s.get(r.ID); err != nil || len(listed) != 1 || info.State != engine.Uncertain {
		t.Errorf("while it is asked the run is %s, and %d are listed as uncertain, %v", info.State, len(listed), err)
	}
	asked.release()
	if out := s.wait(r); out != (receipt{"x", 1}) {
		t.Errorf("the run gives %+v", out)
	}
	s.charged("x", 1, "a")
	s.expect(r.ID, "charge uncertain by recovery, attempt 1", "charge asking by reconciler, attempt 1",
		"charge settled by reconciler, attempt 1", "ship completed by worker, attempt 1")
}

// Nobody acts until a person has found out.
func crashManual(t *testing.T) {
	s := newStage(t, "manual")
	r := s.killedAfterEffect("manual")
	s.until("the effect is uncertain", func() bool { return s.get(r.ID).State == engine.Uncertain })
	// Others go their way meanwhile, from start to end, and this one stands.
	if out := s.wait(s.start("manual", "y")); out != (receipt{"y", 1}) {
		t.Errorf("the other run gives %+v", out)
	}
	info := s.get(r.ID)
	if info.State != engine.Uncertain || !info.DueAt.IsZero() || info.Step != "charge" || info.Code != "LEASE_EXPIRED" || len(info.History) != 1 {
		t.Errorf("without a person's word it is %+v", info)
	}
	listed, err := s.e.List(t.Context(), engine.Filter{States: []engine.State{engine.Uncertain}, Step: "charge"})
	if err != nil || len(listed) != 1 || listed[0].ID != r.ID {
		t.Errorf("listed as uncertain: %+v, %v", listed, err)
	}
	s.charged("x", 1, "a")

	by := engine.By{Actor: "ann", Reason: "the bank's statement has it"}
	if err := s.e.Resolve(t.Context(), r.ID, by, engine.ItHappened(receipt{"x", 1}, "statement of the 3rd, line 7")); err != nil {
		t.Fatal(err)
	}
	if out := s.wait(r); out != (receipt{"x", 1}) {
		t.Errorf("the run gives %+v", out)
	}
	s.charged("x", 1, "a")
	s.expect(r.ID, "charge uncertain by recovery, attempt 1", "charge resolved by person, attempt 1",
		"charge settled by worker, attempt 1", "ship completed by worker, attempt 1")
	if h := s.get(r.ID).History[1]; h.Actor != by.Actor || h.Reason != by.Reason || h.EvidenceText == "" {
		t.Errorf("the person's word is recorded as %+v", h)
	}
}
