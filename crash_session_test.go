//go:build unix

package pawl_test

import (
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
)

// crashHalfHourLease: the leases are of half an hour, and their holder is
// killed. With the default session its jobs are taken back within seconds: one
// is tried again, of the other's effect somebody asks.
func crashHalfHourLease(t *testing.T) {
	const session, within = 15 * time.Second, 20 * time.Second
	s := newStage(t, "slow", "slow-lookup")
	here := s.target.holdAfter(func(c call) bool { return c.Worker == "a" })
	a := s.worker(role{Name: "a", Session: session})
	slow, lookup := s.start("slow", "slow"), s.start("slow-lookup", "lookup")
	here.wait(t)
	here.wait(t)
	s.worker(role{Name: "b", Session: session})
	var killed time.Time
	var shortest float64
	s.scan("SELECT pawl.clock(), (SELECT extract(epoch FROM min(expires_at - pawl.clock())) / 60 FROM pawl.job WHERE state = 'running')::float8", nil, &killed, &shortest)
	if shortest < 25 {
		t.Fatalf("the shortest lease is of %.1f minutes", shortest)
	}
	a.kill(t)
	s.wait(slow)
	s.wait(lookup)
	s.expect(slow.ID, "wait lapsed by recovery, attempt 1", "wait completed by worker, attempt 2")
	s.expect(lookup.ID, "wait uncertain by recovery, attempt 1", "wait asking by reconciler, attempt 1", "wait settled by reconciler, attempt 1")
	if n := s.target.count("wait", "lookup"); n != 1 {
		t.Errorf("the effect to be looked up took place %d times", n)
	}
	for _, r := range []engine.Run[receipt]{slow, lookup} {
		if took := s.get(r.ID).History[0].EndedAt.Sub(killed); took > within {
			t.Errorf("%s was taken back %v after the kill", s.get(r.ID).Workflow, took)
		} else {
			t.Logf("%s was taken back %v after the kill", s.get(r.ID).Workflow, took)
		}
	}
}
