//go:build unix

package pawl_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/fault"
	"github.com/pawlworks/pawl/steps"
)

const (
	answerWithin = time.Second // what the bodies give the target
	// For how long a target that forgets is said to remember keys: less than what
	// is left of a session, whenever its worker dies.
	briefly      = 1500 * time.Millisecond
	forgetsAfter = briefly + time.Second
)

// declarations are the workflows whose charge differs in what it declares.
var declarations = []string{"pay-idempotent", "pay-lookup", "pay-manual"}

func init() {
	soon := steps.Retry{Attempts: 25, Delay: quick.Delay, MaxDelay: quick.MaxDelay}
	for name, declare := range map[string]func(*hand) steps.Step[order, receipt]{
		"pay-idempotent": func(h *hand) steps.Step[order, receipt] {
			return steps.New("charge", h.pays, soon, steps.RetryUnknown(soon), steps.Idempotent(steps.Forever))
		},
		"pay-briefly": func(h *hand) steps.Step[order, receipt] {
			return steps.New("charge", h.pays, soon, steps.RetryUnknown(soon), steps.Idempotent(briefly))
		},
		"pay-lookup": func(h *hand) steps.Step[order, receipt] {
			return steps.New("charge", h.pays, soon).LookUp(h.find, lateArrival, quick)
		},
		"pay-manual": func(h *hand) steps.Step[order, receipt] { return steps.New("charge", h.pays, soon, steps.Manual()) },
	} {
		flow(name, declare)
	}
}

// pays has its effect within a time; a no is definite, and all else is not.
func (h *hand) pays(ctx context.Context, o order) (receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	r, err := h.do(ctx, "charge", o)
	if err == errDeclined {
		return r, steps.Permanent("DECLINED", err)
	}
	return r, err
}

// cell is a run of the matrix.
type cell struct {
	flow string
	how  manner
	run  engine.Run[receipt]
	died string // the point where it was when its worker died
	out  receipt
	err  error
}

func (c *cell) order() string { return c.flow + "." + string(c.how) }

// crashMatrix kills a worker at every point, with runs of every declaration
// there at a target of every manner. What is to be charged is charged once,
// what is declined never, and each run ends as it should.
//
// A target has no memory of keys but for charges that are declared Idempotent,
// where it is needed: elsewhere a request that should not have been sent is a
// second charge. That one which forgets keys is told so is not promised; that
// it is not, once the time declared is over, is what pay-briefly is for.
func crashMatrix(t *testing.T) {
	for _, label := range fault.Labels {
		t.Run(label, func(t *testing.T) { t.Parallel(); crashMatrixAt(t, label) })
	}
}

func crashMatrixAt(t *testing.T, label string) {
	s := newStage(t, append(slices.Clone(declarations), "pay-briefly", "short")...)
	var cells []*cell
	for _, how := range []manner{behaves, failsBefore, failsAfter, silentBefore, silentAfter, losesAnswer, declines} {
		for _, flow := range declarations {
			cells = append(cells, &cell{flow: flow, how: how})
		}
	}
	cells = append(cells, &cell{flow: "pay-briefly", how: behaves})
	s.behaveAs(cells)

	var waiting sync.WaitGroup
	s.killedTogether(label, len(cells), func() {
		for _, c := range cells {
			c.run = s.start(c.flow, c.order())
			waiting.Go(func() { c.out, c.err = s.outcome(c.run) })
		}
	})
	s.stoodAt(label, cells)

	s.worker(role{Name: "survivor", Session: 30 * time.Second})
	s.decidesUntil(&waiting)
	for _, c := range cells {
		s.endedWell(c)
	}
	for how, n := range s.target.shown {
		if n < len(declarations) {
			t.Errorf("only %d requests have met a target that %s", n, how)
		}
	}
}

// behaveAs gives the target its manners and its memory.
func (s *stage) behaveAs(cells []*cell) {
	s.target.manners = map[string]manner{}
	for _, c := range cells {
		s.target.manners[c.order()] = c.how
	}
	var first sync.Map // when a key came first
	s.target.remember = true
	s.target.forgets = func(c call) bool {
		switch {
		case strings.HasPrefix(c.Order, "pay-idempotent"), c.Step != "charge":
			return false
		case strings.HasPrefix(c.Order, "pay-briefly"):
			at, _ := first.LoadOrStore(c.Key, time.Now())
			return time.Since(at.(time.Time)) > forgetsAfter
		}
		return true
	}
}

// killedTogether brings n runs to a point and kills their worker when all are
// there.
func (s *stage) killedTogether(label string, n int, start func()) {
	s.Helper()
	switch label {
	case fault.BeforeClaim, fault.AfterClaim:
		n = 1 // one claim, for all of them
	case fault.BeforeCommit, fault.AfterCommit:
		// Both of the committer's writers have their hands full before the runs
		// are started: what these bring, a third batch takes.
		full := s.target.hold(at(fault.BeforeCommit, ""))
		doomed := s.worker(role{Name: "doomed", Kill: label, KillAt: 3, Hold: []string{fault.BeforeCommit, fault.AfterBody}})
		for i := range 2 {
			s.start("short", fmt.Sprint("first-", i))
			full.wait(s)
		}
		start()
		s.until("all bodies have returned", func() bool { return len(s.target.of("at", at(fault.AfterBody, ""))) >= n+2 })
		full.release()
		doomed.died(s)
		return
	}
	start()
	here := s.target.hold(at(label, ""))
	doomed := s.spawn(role{Name: "doomed", Hold: []string{label}})
	for range n {
		here.wait(s)
	}
	doomed.kill(s)
}

// stoodAt fails if the runs did not stand at the point when their worker died.
// Of those behind their commit a few may have come too late for that batch. The
// one whose time may be over by then is left out.
func (s *stage) stoodAt(label string, cells []*cell) {
	s.Helper()
	type standing struct{ claimed, begun, recorded, charged int }
	var is, want standing
	s.scan(`SELECT count(*) FILTER (WHERE j.token > 0 OR j.id IS NULL), count(*) FILTER (WHERE j.begun),
	               count(*) FILTER (WHERE EXISTS (SELECT FROM pawl.history h WHERE h.run_id = r.id))
	          FROM pawl.run r LEFT JOIN pawl.job j ON j.run_id = r.id WHERE r.workflow = ANY ($1)`, []any{declarations}, &is.claimed, &is.begun, &is.recorded)
	for _, c := range cells {
		if c.died = label; label == fault.AfterCommit && len(s.get(c.run.ID).History) == 0 {
			c.died = fault.BeforeCommit
		}
		passed := func(point string) bool {
			return slices.Index(fault.Labels, c.died) >= slices.Index(fault.Labels, point)
		}
		if c.flow == "pay-briefly" {
			continue
		}
		is.charged += s.target.count("charge", c.order())
		if passed(fault.AfterClaim) {
			want.claimed++
		}
		if passed(fault.AfterBegin) && !passed(fault.AfterCommit) && c.flow != "pay-idempotent" {
			want.begun++
		}
		if passed(fault.AfterBody) && c.how.charges() {
			want.charged++
		}
		if passed(fault.AfterCommit) {
			want.recorded++
		}
	}
	if is != want || label == fault.AfterCommit && is.recorded < len(cells)/2 {
		s.Errorf("when the worker died the runs were %+v, want %+v", is, want)
	}
}

// decidesUntil has a person act until all have what they wait for.
func (s *stage) decidesUntil(waiting *sync.WaitGroup) {
	s.Helper()
	all := make(chan struct{})
	go func() { waiting.Wait(); close(all) }()
	for again := time.NewTicker(100 * time.Millisecond); ; s.decide() {
		select {
		case <-all:
			again.Stop()
			return
		case <-again.C:
		}
	}
}

// decide is a person who looks into the ledger, and nowhere else.
func (s *stage) decide() {
	s.Helper()
	unsure, err := s.e.List(s.Context(), engine.Filter{States: []engine.State{engine.Uncertain}})
	if err != nil {
		s.Fatal(err)
	}
	for _, r := range unsure {
		info := s.get(r.ID)
		if len(info.Jobs) != 1 || info.State != engine.Uncertain || !info.DueAt.IsZero() || !info.Jobs[0].ExpiresAt.IsZero() {
			continue // somebody asks, or will
		}
		var o order
		if err := json.Unmarshal(info.Input, &o); err != nil {
			s.Fatal(err)
		}
		found := engine.ItNeverHappened("the ledger does not have it")
		if n := s.target.count("charge", o.Name); n > 0 {
			found = engine.ItHappened(receipt{o.Name, n}, "the ledger has it")
		}
		if err := s.e.Resolve(s.Context(), r.ID, engine.By{Actor: "ann", Reason: "I have looked"}, found); err != nil {
			s.Fatal(err)
		}
	}
}

// endedWell fails unless a run has ended as it should, by whom it should.
func (s *stage) endedWell(c *cell) {
	s.Helper()
	charges := 1
	if c.how == declines {
		charges = 0
		var failed *engine.FailedError
		if !errors.As(c.err, &failed) || failed.Step != "charge" || failed.Code != "DECLINED" {
			s.Errorf("%s: %v, want DECLINED", c.order(), c.err)
		}
	} else if c.err != nil || c.out != (receipt{c.order(), 1}) {
		s.Errorf("%s: the run gives %+v, %v", c.order(), c.out, c.err)
	}
	keys := map[string]bool{}
	for _, q := range s.target.of("effects", at("charge", c.order())) {
		keys[q.Key] = true
	}
	n := s.target.count("charge", c.order())
	if n != charges || len(keys) != 1 || keys[""] {
		s.Errorf("%s: %d charges under the keys %v, want %d under one; the history is\n%s", c.order(), n, keys, charges, s.story(c.run.ID))
	}

	var unsure, person int
	slow := false // the machine, so that there was no answer in time
	for _, h := range s.get(c.run.ID).History {
		switch h.Event {
		case "uncertain":
			unsure++
			slow = slow || h.Code == "TIMEOUT"
			if c.flow == "pay-briefly" && h.Code != "KEY_EXPIRED" {
				s.Errorf("%s: uncertain with %s: %s", c.order(), h.Code, h.Reason)
			}
		case "resolved":
			person++
		}
	}
	begun := slices.Contains([]string{fault.AfterBegin, fault.BeforeBody, fault.AfterBody, fault.BeforeCommit}, c.died)
	doubt := begun || c.how != behaves && c.how != declines || slow
	switch c.flow {
	case "pay-idempotent":
		doubt = false // its target is told again
	case "pay-briefly":
		doubt = begun || unsure > 0 // which it is if this machine takes too long
	}
	if (unsure > 0) != doubt || (person > 0) != (doubt && c.flow != "pay-lookup") {
		s.Errorf("%s: uncertain %d times, decided by a person %d times; in doubt: %v\n%s", c.order(), unsure, person, doubt, s.story(c.run.ID))
	}
}
