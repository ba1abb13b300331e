//go:build unix

package pawl_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
)

// crashTerminated: a process gets SIGTERM, as on every deployment. Its session
// and its leases are of a minute, so what others have earlier it has given to them.
func crashTerminated(t *testing.T) {
	t.Run("to_its_limit", func(t *testing.T) { t.Parallel(); crashDrainLimit(t) })
	t.Run("no_longer_than_needed", func(t *testing.T) { t.Parallel(); crashDrainShort(t) })
}

const (
	longSession = time.Minute
	drainLimit  = 8 * time.Second
	// Of what is not a matter of the limit: bodies' return, hand-backs, a loaded
	// machine. Far less than a session.
	generous = 20 * time.Second
)

// crashDrainLimit: what returns in time is recorded and its successor left to
// others, a long step stops at its next cursor, and at the limit the rest is
// handed back; effects in flight are uncertain then.
func crashDrainLimit(t *testing.T) {
	s := newStage(t, "short", "lookup", "idempotent", "manual", "long")
	s.target.remember = true
	s.target.forgets = func(c call) bool { return c.Order != "key" }
	of := func(order string) func(call) bool {
		return func(c call) bool { return c.Kind == "effects" && c.Worker == "a" && c.Order == order }
	}
	waited, rows := s.target.hold(of("waited")), s.target.hold(of("rows"))
	held := []*hold{waited, rows, s.target.hold(of("plain")), s.target.holdAfter(of("key")), s.target.holdAfter(of("asked")), s.target.holdAfter(of("decided"))}
	a := s.worker(role{Name: "a", Session: longSession, Drain: drainLimit})
	runs := map[string]engine.Run[receipt]{}
	for name, workflow := range map[string]string{"waited": "lookup", "rows": "long", "plain": "short", "key": "idempotent", "asked": "lookup", "decided": "manual"} {
		runs[name] = s.start(workflow, name)
	}
	for _, h := range held {
		h.wait(t)
	}

	told := time.Now()
	a.terminate(t)
	waited.release()
	rows.release()
	late := make([]order, 20)
	for i := range late {
		late[i].Name = fmt.Sprint("late-", i)
	}
	others, err := engine.StartMany(t.Context(), s.e, contract("short"), late)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"waited", "rows"} {
		s.until(name+" is given to others", func() bool {
			info := s.get(runs[name].ID)
			return len(info.History) == 1 && len(info.Jobs) == 1 && info.Jobs[0].State == "pending" && info.Jobs[0].Attempt == 0
		})
	}
	var claimed int
	s.scan("SELECT count(*) FROM pawl.job j JOIN pawl.run r ON r.id = j.run_id WHERE convert_from(r.input, 'UTF8') LIKE '%late-%' AND j.token > 0", nil, &claimed)
	if claimed != 0 {
		t.Errorf("after SIGTERM %d jobs were claimed", claimed)
	}
	s.worker(role{Name: "b", Session: 15 * time.Second})
	a.left(t)
	if took := time.Since(told); took < drainLimit || took > drainLimit+generous {
		t.Errorf("the worker left %v after SIGTERM, its limit is %v", took, drainLimit)
	} else {
		t.Logf("the worker left %v after SIGTERM, its limit is %v", took, drainLimit)
	}
	s.until("the effect that a person is asked about is uncertain", func() bool { return s.get(runs["decided"].ID).State == engine.Uncertain })
	s.decide()

	for name, r := range runs {
		if name == "rows" {
			s.wait(r)
		} else if out := s.wait(r); out.No != 1 && name != "plain" {
			t.Errorf("%s: the run gives %+v", name, out)
		}
	}
	const shipped = "ship completed by worker, attempt 1"
	s.expect(runs["waited"].ID, "charge completed by worker, attempt 1", shipped)
	s.expect(runs["rows"].ID, "long handed_back by worker, attempt 1", "long completed by worker, attempt 1")
	s.expect(runs["plain"].ID, "call handed_back by worker, attempt 1", "call completed by worker, attempt 1")
	s.expect(runs["key"].ID, "charge handed_back by worker, attempt 1", "charge completed by worker, attempt 1", shipped)
	s.expect(runs["asked"].ID, "charge uncertain by worker, attempt 1", "charge asking by reconciler, attempt 1", "charge settled by reconciler, attempt 1", shipped)
	s.expect(runs["decided"].ID, "charge uncertain by worker, attempt 1", "charge resolved by person, attempt 1", "charge settled by worker, attempt 1", shipped)
	s.charged("waited", 1, "a")
	s.charged("key", 1, "a", "b")
	s.charged("asked", 1, "a")
	s.charged("decided", 1, "a")
	for n := range longPlaces {
		by := "b"
		if n == 0 { // what it was at when it was told to stop
			by = "a"
		}
		if cs := s.target.of("effects", at(fmt.Sprint("place-", n), "rows")); len(cs) != 1 || cs[0].Worker != by {
			t.Errorf("place %d was worked on by %+v, want %s", n, cs, by)
		}
	}
	for i, r := range others {
		s.wait(r)
		s.expect(r.ID, "call completed by worker, attempt 1")
		if cs := s.target.of("effects", at("call", late[i].Name)); len(cs) != 1 || cs[0].Worker != "b" {
			t.Errorf("%s was worked on by %+v", late[i].Name, cs)
		}
	}
	// At once: as soon as others have seen it, not when something lapses. That
	// there is a question to be asked they see at their next heartbeat.
	end := s.get(runs["plain"].ID).History[0].EndedAt
	if h := s.get(runs["rows"].ID).History[0]; !h.EndedAt.Before(end) {
		t.Errorf("the long step was handed back at %v, not at its next cursor, but when the limit was reached, at %v", h.EndedAt, end)
	}
	for _, name := range []string{"plain", "key", "rows", "asked"} {
		history := s.get(runs[name].ID).History
		if took := history[len(history)-1].EndedAt.Sub(history[0].EndedAt); took > generous {
			t.Errorf("%s: others had ended it %v after it was handed back", name, took)
		} else {
			t.Logf("%s: others had ended it %v after it was handed back", name, took)
		}
	}
}

// crashDrainShort: a drain ends with the last step, long before its limit.
func crashDrainShort(t *testing.T) {
	s := newStage(t, "lookup")
	here := s.target.holdAfter(at("charge", "x"))
	a := s.worker(role{Name: "a", Session: longSession, Drain: longSession})
	r := s.start("lookup", "x")
	here.wait(t)
	told := time.Now()
	a.terminate(t)
	here.release()
	a.left(t)
	if took := time.Since(told); took > generous {
		t.Errorf("the worker left %v after SIGTERM, with nothing to wait for", took)
	}
	s.worker(role{Name: "b", Session: longSession})
	s.wait(r)
	s.charged("x", 1, "a")
	s.expect(r.ID, "charge completed by worker, attempt 1", "ship completed by worker, attempt 1")
}
