package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// effWindow is the late-arrival window: well above the moment at which the
// provider still charges, on a loaded machine too.
const effWindow = 3 * time.Second

var (
	effByKey    = steps.Declare[effOrder, string]("by-key")
	effByLookUp = steps.Declare[effOrder, string]("by-look-up")
	effByPerson = steps.Declare[effOrder, string]("by-person")
	effBySilent = steps.Declare[effOrder, string]("by-silent-look-up")
)

// effQuick is a budget whose delays a test can wait for.
var effQuick = steps.Retry{Attempts: 30, Delay: 10 * time.Millisecond, MaxDelay: 50 * time.Millisecond}

// effCharging is the ways to charge, each as a workflow of one step.
func effCharging(b *effBank) []steps.Definition {
	opts := []steps.Option{effQuick, steps.RetryUnknown(effQuick)}
	return []steps.Definition{
		effByKey.Of(steps.New("charge", b.charge, steps.Idempotent(steps.Forever)), opts...),
		effByLookUp.Of(steps.New("charge", b.charge).LookUp(b.find, effWindow, steps.Retry{Attempts: 1000, Delay: 50 * time.Millisecond, MaxDelay: 200 * time.Millisecond}), opts...),
		effByPerson.Of(steps.New("charge", b.charge, steps.Manual()), opts...),
		// A look-up that never knows: a person decides when the questions are exhausted.
		effBySilent.Of(steps.New("charge", b.charge).LookUp(func(context.Context, effOrder) (steps.Verdict[string], error) {
			return steps.StillUnknown[string](0), nil
		}, time.Millisecond, steps.Retry{Attempts: 2, Delay: 10 * time.Millisecond, MaxDelay: 20 * time.Millisecond}), opts...),
	}
}

// Every switch of the provider, settled in every way, charges once; with a
// provider that forgets its keys too, where that is not what the step relies on.
func TestEffectChargesOnce(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	b := newEffBank(t)
	e := effEngine(t, pool, engine.Config{Workflows: effCharging(b)})
	work(t, e)

	switches := map[string][]string{}
	for _, s := range []string{effDecline, effFailBefore, effFailAfter, effHangBefore, effHangAfter, effHangUp, effLoseAnswer, effLate} {
		switches[s] = []string{s}
	}
	switches["none"] = nil
	switches[effTwice] = []string{effFailBefore, effHangAfter}
	var cells []effCell
	for name, script := range switches {
		for _, w := range []steps.Workflow[effOrder, string]{effByKey, effByLookUp, effByPerson, effBySilent} {
			for _, forgetful := range []bool{false, true} {
				if forgetful && w.Name() == effByKey.Name() {
					continue // it declares that the target remembers
				}
				c := effCell{how: name, byPerson: w.Name() == effByPerson.Name() || w.Name() == effBySilent.Name()}
				c.order = strings.ReplaceAll(fmt.Sprintf("%s-%s-%v", w.Name(), name, forgetful), " ", "-")
				c.run = effStart(t, e, w, effOrder{ID: c.order, Switches: script, Forgetful: forgetful}, engine.Key(c.order))
				cells = append(cells, c)
			}
		}
	}
	effDecide(t, e, b, cells)
	for _, c := range cells {
		out, err := effResult(t, e, c.run)
		entries := b.entries(c.order)
		if c.how == effDecline {
			var failed *engine.FailedError
			if !errors.As(err, &failed) || failed.Code != "DECLINED" || len(entries) != 0 || b.sent(c.order) != 1 {
				t.Errorf("%s: %v; charged %d times", c.order, err, len(entries))
			}
			continue
		}
		if err != nil || len(entries) != 1 || out != entries[0].Receipt {
			t.Errorf("%s: %q, %v; charged %v\n%+v", c.order, out, err, entries, effGet(t, e, c.run.ID).History)
		}
	}
	for _, s := range []string{effDecline, effFailBefore, effFailAfter, effHangBefore, effHangAfter, effHangUp, effLoseAnswer, effLate} {
		if !b.used[s] {
			t.Errorf("the switch %q was never used", s)
		}
	}
}

type effCell struct {
	run        engine.Run[string]
	how, order string
	byPerson   bool
}

// effDecide is a person who looks into the provider's books for every run that
// waits for one, until all have ended. Where a request is still under way he
// is as patient as a look-up would be.
func effDecide(t *testing.T, e *engine.Engine, b *effBank, cells []effCell) {
	t.Helper()
	cells = slices.DeleteFunc(slices.Clone(cells), func(c effCell) bool { return !c.byPerson })
	effUntil(t, "all runs to end", func() bool {
		cells = slices.DeleteFunc(cells, func(c effCell) bool {
			info := effGet(t, e, c.run.ID)
			if info.State != engine.Uncertain || !info.DueAt.IsZero() || c.how == effLate && time.Since(info.Jobs[0].UncertainAt) < effWindow {
				return info.State == engine.Succeeded || info.State == engine.Failed
			}
			r := engine.ItNeverHappened("the provider's ledger has nothing of it")
			if entries := b.entries(c.order); len(entries) > 0 {
				r = engine.ItHappened(entries[0].Receipt, "the provider's ledger, line 1")
			}
			if err := e.Resolve(context.Background(), c.run.ID, effPerson, r); err != nil && !errors.Is(err, engine.ErrState) {
				t.Error(err)
			}
			return false
		})
		return len(cells) == 0
	})
}
