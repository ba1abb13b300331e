package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pawlworks/pawl/internal/plan"
	"github.com/pawlworks/pawl/steps"
)

// A run keeps its slot over hand-overs while other work is due for this long
// at most; then it waits its turn like the others.
const (
	maxHops = 100
	maxHold = time.Second
)

// advance is the change by which a step is done and its successor due: leased
// to this worker if that may run it, else pending. Behind the last step the
// run ends; if its result can't be made there and then, the place of the
// result is a place like any other, where that fails and is retried.
func (w *worker) advance(ctx context.Context, g *grant, out []byte, event string) *change {
	c := g.changed(stateRunning, event)
	c.output, c.advance = out, true
	c.node = g.node + 1
	c.refs = g.refs.onward(ref{g.node, g.job, g.token + 1}, c.node, g.bind)
	c.attempt, c.transients, c.unknowns, c.questions = 0, 0, 0, 0
	c.term, c.runtime = plan.DefaultLease, plan.DefaultMaxRuntime
	g.values[g.node] = out

	if c.node == g.bind.end() {
		if g.bind.knows(c.node) {
			if result, err := w.result(ctx, g, c); err == nil {
				c.to, c.result = stateGone, result
				return c
			}
		}
	} else if c.next = g.bind.nodes[c.node].step; c.next != nil {
		c.route = w.routeOf(g, c.next.Queue)
		c.term, c.runtime = c.next.Lease, c.next.MaxRuntime
	}
	if !w.mayKeep(g, c) {
		c.to = statePending
		return c
	}
	c.attempt = 1
	w.prepareEffect(ctx, g, c)
	return c
}

// mayKeep tells whether the successor may be leased to this worker.
func (w *worker) mayKeep(g *grant, c *change) bool {
	switch {
	case w.draining.Load(), !g.bind.knows(c.node), c.route != g.route:
		return false
	case w.backlog.Load() && (g.hops >= maxHops || time.Since(g.since) > maxHold):
		return false
	}
	return true
}

// prepareEffect adds the effect's key and the hash of its input, so that the
// grant stores them. If the input can't be made the attempt will say so.
func (w *worker) prepareEffect(ctx context.Context, g *grant, c *change) {
	if c.next == nil || c.next.Effect == plan.NoEffect {
		return
	}
	n := g.ahead(c)
	var hash [sha256.Size]byte
	if inTime(func() error {
		in, err := n.bind.nodes[n.node].eval(func(node int) ([]byte, error) { return w.value(ctx, n, node) })
		if err != nil {
			return err
		}
		b, err := plan.Encode(in)
		hash = sha256.Sum256(b)
		return err
	}) == nil {
		c.key, c.hash = n.key(), hash[:]
	}
	if c.next.Effect == plan.Idempotent && c.next.TTL != plan.Forever {
		c.runtime = min(c.runtime, c.next.TTL)
		c.term = min(c.term, c.runtime)
	}
}

// result makes the run's result at its end. Nil: it is the last step's output.
func (w *worker) result(ctx context.Context, g *grant, c *change) ([]byte, error) {
	n := g.ahead(c)
	var b []byte
	err := inTime(func() error {
		v, err := n.bind.nodes[n.node].eval(func(node int) ([]byte, error) { return w.value(ctx, n, node) })
		if err != nil {
			return err
		}
		b, err = plan.Encode(v)
		return err
	})
	if err != nil { // it may still write to b
		return nil, steps.Permanent("ENCODE", err)
	}
	if err := w.checkResult(b, nil); err != nil {
		return nil, err
	}
	if slices.Equal(b, c.output) {
		return nil, nil
	}
	return b, nil
}

// ahead is a copy that stands at the next place: a Map that is given up there
// may go on in its goroutine, and must not meet what the run does meanwhile.
func (g *grant) ahead(c *change) *grant {
	n := *g
	n.node, n.refs, n.effectGen, n.values = c.node, c.refs, 0, maps.Clone(g.values)
	return &n
}

// mapTime is what the Maps behind a step that is done may take before its
// commit: the commit is not held up for longer, and they run again at the next
// place, where that is an attempt of its own.
const mapTime = time.Second

var errMapTime = errors.New("a Map takes long")

// inTime is a call of users' code for what must not hold up a commit.
func inTime(fn func() error) error {
	t := time.NewTimer(mapTime)
	defer t.Stop()
	select {
	case err := <-aside(fn):
		return err
	case <-t.C:
		return errMapTime
	}
}

// checkResult tells why a result, or what came of making it, can't be kept.
func (w *worker) checkResult(b []byte, err error) error {
	if err != nil {
		return steps.Permanent("ENCODE", err)
	}
	if len(b) > w.e.config.MaxPayload {
		return steps.Permanent("TOO_LARGE", fmt.Errorf("%w: the result has %d bytes, more than %d", ErrTooLarge, len(b), w.e.config.MaxPayload))
	}
	return nil
}

// finish ends a run at the place of its result.
func (w *worker) finish(g *grant, v any) *change {
	var b []byte
	err := g.code.protect(func() (err error) { b, err = plan.Encode(v); return err })
	if err := w.checkResult(b, err); err != nil {
		return g.failed(nil, false, steps.Classify(err))
	}
	c := g.changed(stateGone, "completed")
	c.output, c.advance, c.refs = b, true, nil
	return c
}

// carryOn goes on from an output that a person gave for an uncertain effect.
func (w *worker) carryOn(l *lease, g *grant) *change {
	var b []byte
	r, ok := g.refs.find(g.node)
	err := errNoValue
	if ok {
		b, err = w.recorded(l.ctx, g, r)
	}
	if cause := context.Cause(l.ctx); err != nil && cause != nil {
		return w.interrupted(g, l, cause, output{}, err)
	}
	if err == nil {
		err = g.code.protect(func() error { _, err := g.step().DecodeOut(b); return decodes(err) })
	}
	if err != nil {
		if e := classify(err); e.Class == steps.ClassTransient {
			return g.handBack(time.Second, clean(reasonOf(e), maxReason))
		}
		e := classify(err)
		e.Err = fmt.Errorf("the output that was given for step %q: %w", g.name(), e.Err)
		return g.unsure(person, e)
	}
	return w.advance(l.ctx, g, b, "settled")
}

// settle writes the change, unless that has been done, and returns the grant
// of the successor with its lease, if it was leased to this worker.
func (w *worker) settle(g *grant, l *lease, c *change, a *answer) (*grant, *lease) {
	if a == nil {
		if !l.settle() { // a drain has given up on it
			w.report(g, l, c, answer{verdict: verdictAbandoned})
			w.lateChange(g, l, c)
			w.drop(l)
			return nil, nil
		}
		l.waiting.Store(true)
		got := w.submit(c)
		a = &got
	}
	switch a.verdict {
	case verdictRefused:
		l.settled.Store(false)
		if c.class != "" && c.output == nil { // it was the error's own record that did not fit
			w.log.Error("pawl: PostgreSQL refuses to record a failure; the lease will lapse", "run_id", g.run, "step", g.name(), "error", a.err)
			w.report(g, l, c, answer{verdict: verdictAbandoned})
			w.drop(l)
			return nil, nil
		}
		return w.settle(g, l, w.refusedValue(g, l, a.err), nil)
	case verdictLost:
		w.lateChange(g, l, c)
	}
	w.report(g, l, c, *a)
	if a.verdict != verdictDone {
		w.drop(l)
		return nil, nil
	}
	if a.state != stateRunning {
		w.drop(l)
		w.tellOthers(c, a.state)
		return nil, nil
	}
	next := g.successor(c, a)
	return next, w.replace(l, newLease(w.hard, next))
}

func (w *worker) refusedValue(g *grant, l *lease, cause error) *change {
	err := steps.Classify(steps.Permanent("BAD_VALUE", fmt.Errorf("PostgreSQL refuses the output: %w", cause)))
	if l.step != nil && l.step.Effect != plan.NoEffect {
		return g.unsure(person, err)
	}
	return g.dead(err)
}

// tellOthers wakes those for whom the change means work, or an end.
func (w *worker) tellOthers(c *change, state string) {
	switch {
	case state == stateGone, c.to == stateDead:
		w.e.listener.tell(wakeEnded)
		w.e.notifier.wake(wakeEnded)
	case state == statePending && c.delay <= 0:
		w.claimer.wake()
		w.e.notifier.wake(wakeWork)
	case state == statePending:
		w.claimIn(c.delay)
	case state == stateUncertain && c.delay >= 0:
		w.askIn(c.delay)
	}
}

// successor is the next position of the run, leased by the hand-over.
func (g *grant) successor(c *change, a *answer) *grant {
	n := *g
	n.token, n.node, n.refs, n.route, n.mode = c.token+1, c.node, c.refs, c.route, modeDo
	n.attempt, n.transients, n.unknowns, n.questions, n.effectGen, n.cursorSeq = 1, 0, 0, 0, 0, 0
	n.grantedAt, n.failedAt, n.uncertainAt, n.effectAt, n.effectHash = a.grantedAt, nil, nil, a.effectAt, c.hash
	n.sent, n.term, n.runtime = a.sent, a.term, a.runtime
	n.shaped = c.next == nil || c.next.Effect == plan.NoEffect || c.key != nil
	n.hops++
	for node := range n.values {
		if node >= 0 && n.bind.lastUse[node] < n.node {
			delete(n.values, node)
		}
	}
	return &n
}

// lateChange keeps the result of an effect whose commit was refused.
func (w *worker) lateChange(g *grant, l *lease, c *change) {
	l.lose()
	if l.step == nil || g.mode != modeDo || c.event == "handed_back" || c.event == "snoozed" {
		return
	}
	var err error
	if !c.advance {
		err = &steps.Error{Class: steps.Class(c.class), Code: c.code, Err: errors.New(c.reason)}
	}
	w.late(g, l, output{bytes: c.output}, err)
}
