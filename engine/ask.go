package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/fault"
	"github.com/pawlworks/pawl/internal/plan"
	"github.com/pawlworks/pawl/steps"
)

// ask is one question of the reconciler: a leased job like any other, in mode ask.
//
// Invariants: an error, whatever stands beside it, is StillUnknown; "never
// happened" counts only when the question was asked later than the late-arrival
// window after the outcome became unknown; questions have a backoff and a
// budget, and when that is spent a person is asked.
func (w *worker) ask(l *lease, g *grant, step *plan.Step, in any) *change {
	if step.Ask == nil { // the code has no look-up any more, or never had
		c := g.stillUnknown(step, 0, nil)
		c.delay = person
		return c
	}
	ctx, cancel := context.WithTimeout(l.within(l.ctx), plan.DefaultLease-2*margin(plan.DefaultLease))
	defer cancel()
	ctx = plan.WithAttempt(ctx, &plan.Attempt{Key: g.keyText, Number: int(g.attempt), Acknowledge: func(context.Context) error { return context.Cause(l.ctx) },
		Late: func() ([]byte, bool) {
			rows, err := w.e.db.LateOutput(ctx, db.LateOutputParams{Shard: g.shard, RunID: g.run, Job: g.job, Node: int32(g.node)})
			if err != nil || len(rows) == 0 || text(rows[0].Encoding) != encodingJSON {
				return nil, false
			}
			return rows[0].Output, true
		}})
	var v plan.Verdict
	fault.Point(fault.BeforeBody)
	err := g.code.protect(func() (err error) { v, err = step.Ask(ctx, in); return err })
	fault.Point(fault.AfterBody)
	l.waiting.Store(true)
	if cause := context.Cause(l.ctx); cause != nil && (err != nil || l.lost.Load()) {
		if errors.Is(cause, steps.ErrLeaseLost) || l.lost.Load() {
			return nil
		}
		return g.stillUnknown(step, time.Millisecond, nil)
	}
	switch {
	case err != nil:
		return g.stillUnknown(step, 0, classify(err))
	case v.Outcome == plan.Happened:
		return w.happened(l, g, step, v.Output)
	case v.Outcome == plan.NeverHappened:
		if waited := g.grantedAt.Sub(*g.uncertainAt); waited < step.LateArrival {
			return g.tooEarly(step, waited)
		}
		return g.repeat(step)
	}
	return g.stillUnknown(step, v.Again, nil)
}

func (w *worker) happened(l *lease, g *grant, step *plan.Step, v any) *change {
	var out output
	out.err = g.code.protect(func() (err error) { out.bytes, err = plan.Encode(v); return err })
	c := w.completed(g, l, step, out)
	if c.advance {
		c.event = "settled"
	}
	return c
}

// repeat: it never happened, so the step may be tried again, under the same
// key. That was a failed attempt, and costs as one.
func (g *grant) repeat(step *plan.Step) *change {
	c := g.again(step.Transient, &steps.Error{Class: steps.ClassTransient, Code: "NEVER_HAPPENED",
		Err: fmt.Errorf("the look-up of step %q found that its effect did not happen", step.Name)}, &g.transients)
	c.transients = g.transients
	if c.to == statePending {
		c.event = "repeat"
	}
	return c
}

// tooEarly asks again at the end of the late-arrival window, and on the way
// there after twice the time, and twice again: it may turn out to have happened.
// That costs nothing of the budget, since the end is known.
func (g *grant) tooEarly(step *plan.Step, waited time.Duration) *change {
	c := g.changed(stateUncertain, "unknown")
	c.delay = min(step.LateArrival-waited+time.Millisecond, max(waited, step.Questions.Delay))
	return c
}

// stillUnknown asks again later, by the answer's own time or by backoff, until
// the budget is spent; then a person is asked.
func (g *grant) stillUnknown(step *plan.Step, again time.Duration, e *steps.Error) *change {
	budget := plan.Retry{Attempts: 100, Within: 24 * time.Hour, Delay: time.Second, MaxDelay: 10 * time.Minute}
	if step != nil && step.Questions.Attempts > 0 {
		budget = step.Questions
	}
	c := g.changed(stateUncertain, "unknown")
	c.questions++
	if e != nil {
		c.because(e)
	}
	switch {
	case int(c.questions) >= budget.Attempts, budget.Within > 0 && g.now().Sub(*g.uncertainAt) > budget.Within:
		c.delay, c.code = person, "QUESTIONS_EXHAUSTED"
		c.reason = clean(fmt.Sprintf("asked %d times since %s without an answer that settles it: a person must. %s",
			c.questions, g.uncertainAt.UTC().Format(time.RFC3339), c.reason), maxReason)
	case again > 0:
		c.delay = again
	default:
		c.delay = budget.After(int(c.questions))
	}
	return c
}
