package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/fault"
	"github.com/pawlworks/pawl/internal/plan"
	"github.com/pawlworks/pawl/internal/telemetry"
	"github.com/pawlworks/pawl/steps"
)

// The executor runs one granted position after another in one goroutine, for
// as long as the hand-over leases the run's next step to this worker.
//
// Invariants: no transaction is open while a step's code runs (but for
// transactional steps); a body that panics or ends its goroutine ends only its
// attempt; what a body reports counts only under its lease; a LookUp or Manual
// body is called only after its beginning is durable.
func (w *worker) execute(g *grant, l *lease) {
	g.code = w.code
	w.follow(g)
	for g != nil {
		w.open(g, l)
		c, a := w.attempt(g, l)
		if c == nil {
			w.report(g, l, nil, answer{})
			w.drop(l)
			return
		}
		g, l = w.settle(g, l, c, a)
	}
}

// attempt returns the change to be written; for a transactional step that has
// been committed already, with its answer. Nil: the lease is lost, and nothing counts.
func (w *worker) attempt(g *grant, l *lease) (*change, *answer) {
	switch {
	case g.cancelling && g.mode != modeAsk:
		return g.handBack(0, "the run is being cancelled"), nil // which ends it
	case w.draining.Load():
		return g.handBack(0, "the worker is draining"), nil
	case !g.bind.knows(g.node):
		return g.handBack(unknownHere, "this worker does not know the step"), nil
	case g.mode == modeSettled:
		return w.carryOn(l, g), nil
	}
	step := g.step()
	in, err := w.input(l, g)
	if err != nil {
		if cause := context.Cause(l.ctx); cause != nil {
			return w.interrupted(g, l, cause, output{}, err), nil
		}
		if g.mode == modeAsk {
			return g.stillUnknown(step, 0, classify(err)), nil
		}
		return g.failed(step, false, classify(err)), nil
	}
	if step == nil {
		return w.finish(g, in), nil
	}
	key, hash, c := g.effect(step, in)
	if c != nil {
		return c, nil
	}
	if g.mode == modeAsk {
		return w.ask(l, g, step, in), nil
	}
	runtime := step.MaxRuntime
	if step.Effect == plan.Idempotent && step.TTL != plan.Forever {
		first := g.now()
		if g.effectAt != nil {
			first = *g.effectAt
		}
		if runtime = min(runtime, step.TTL-g.now().Sub(first)); runtime <= 0 {
			return g.unsure(person, keyExpired(step)), nil
		}
	}
	if g.mustBegin(step) || runtime < step.MaxRuntime {
		a, ok := w.begin(l, g, step, runtime, key, hash)
		switch cause := context.Cause(l.ctx); {
		case !ok && cause != nil && !errors.Is(cause, steps.ErrLeaseLost):
			return w.interrupted(g, l, cause, output{}, cause), nil
		case a.verdict == verdictRefused:
			return g.dead(steps.Classify(steps.Permanent("BAD_VALUE", fmt.Errorf("PostgreSQL refuses to store the step's effect: %w", a.err)))), nil
		case !ok:
			return nil, nil
		case a.hash != nil && hash != nil && !bytes.Equal(a.hash, hash):
			return g.inputChanged(step), nil
		}
		if step.Effect != plan.NoEffect {
			l.event(telemetry.EventEffectBegun)
		}
	}
	if step.Kind == plan.Tx {
		if !w.permit(l.ctx, min(l.length/2, permitWait)) {
			return g.handBack(spread(time.Second), "no connection was free for its transaction"), nil
		}
		defer w.permitted()
		return w.transact(l, g, step, in)
	}
	out, err := w.call(l, g, step, in, nil)
	return w.outcome(g, l, step, out, err), nil
}

// unknownHere is for how long others have the time to take what this process
// has claimed and does not know: it happens only around a deployment.
const unknownHere = 5 * time.Second

// input makes the step's input, or the run's result. Map functions run here.
func (w *worker) input(l *lease, g *grant) (in any, err error) {
	err = g.code.within(l.ctx, func() (err error) { // a Map may hang
		if r, ok := g.refs.find(corrected(g.node)); ok && g.step() != nil {
			b, err := w.recorded(l.ctx, g, r)
			if err != nil {
				return err
			}
			in, err = g.step().DecodeIn(b)
			return decodes(err)
		}
		in, err = g.bind.nodes[g.node].eval(func(node int) ([]byte, error) { return w.value(l.ctx, g, node) })
		return err
	})
	return in, err
}

// decodes makes a payload that does not decode permanent.
func decodes(err error) error {
	if err == nil || steps.Classify(err).Class == steps.ClassPermanent {
		return err
	}
	return steps.Permanent("DECODE", err)
}

// effect is the key and the input hash of a step's effect, or what becomes of
// an attempt whose input is not the first grant's.
func (g *grant) effect(step *plan.Step, in any) (key, hash []byte, c *change) {
	if step.Effect == plan.NoEffect {
		return nil, nil, nil
	}
	key = g.key()
	var b []byte
	if err := g.code.protect(func() (err error) { b, err = plan.Encode(in); return err }); err != nil {
		e := steps.Classify(steps.Permanent("ENCODE", err))
		if g.mode == modeAsk { // what is unknown stays so
			return nil, nil, g.unsure(person, e)
		}
		return nil, nil, g.dead(e)
	}
	sum := sha256.Sum256(b)
	if g.effectHash != nil && !bytes.Equal(g.effectHash, sum[:]) {
		return nil, nil, g.inputChanged(step)
	}
	return key, sum[:], nil
}

// inputChanged: the key stands for another input. Nothing is sent.
func (g *grant) inputChanged(step *plan.Step) *change {
	e := steps.Classify(steps.Permanent("INPUT_CHANGED", fmt.Errorf(
		"the input of step %q differs from the one that its effect's key was first used for: a Map or a type has changed; nothing was sent", step.Name)))
	if step.Effect == plan.Idempotent {
		return g.dead(e)
	}
	return g.unsure(person, e)
}

func keyExpired(step *plan.Step) *steps.Error {
	return &steps.Error{Class: steps.ClassUncertain, Code: "KEY_EXPIRED", Err: fmt.Errorf(
		"the target of step %q remembers keys for %v, and that has passed since the first attempt: sending it again could do it twice", step.Name, step.TTL)}
}

// call runs the body under the lease's context, with the step's max runtime
// as its deadline.
func (w *worker) call(l *lease, g *grant, step *plan.Step, in any, tx pgx.Tx) (out output, err error) {
	ctx, cancel := context.WithTimeout(l.within(l.ctx), l.bodyTime())
	defer cancel()
	b := &body{step: step, in: in, tx: tx, attempt: plan.Attempt{Key: g.keyText, Number: int(g.attempt), Acknowledge: func(context.Context) error {
		l.progress.Add(1)
		w.keeper.wake()
		return context.Cause(l.ctx)
	}}}
	ctx = plan.WithAttempt(ctx, &b.attempt)
	if step.Kind == plan.Long {
		c, err := w.cursor(l, g)
		if err != nil {
			return output{}, err
		}
		b.cur = c
	}
	fault.Point(fault.BeforeBody)
	err = g.code.protect(func() error { return b.run(ctx) })
	out.bytes = b.out
	if b.said != nil { // what the classifier may have thrown comes behind it
		var t thrown
		if errors.As(err, &t) {
			err = thrown{t.code, b.said.Error() + "; and then " + t.text}
		}
	}
	if b.returned && err != nil { // the body has done its work; what it returns can't be kept
		out, err = output{err: err}, nil
	}
	fault.Point(fault.AfterBody)
	l.waiting.Store(true) // its result awaits commit: that is progress
	return out, err
}

// body is one call of a step's code.
type body struct {
	step     *plan.Step
	in       any
	tx       pgx.Tx
	cur      plan.Cursor // nil: the step has none
	attempt  plan.Attempt
	said     error // by the body
	returned bool
	out      []byte
}

func (b *body) run(ctx context.Context) error {
	v, err := b.step.Body(ctx, b.in, b.tx, b.cur)
	if err != nil {
		b.said = freeze(err)
		return byClassifier(b.step, err)
	}
	b.returned = true
	b.out, err = plan.Encode(v)
	return err
}

// output is what a body has returned, encoded, or why it can't be.
type output struct {
	bytes []byte
	err   error
}

// byClassifier asks the step's own classifier about an error that has no class yet.
func byClassifier(step *plan.Step, err error) error {
	var t thrown // in a transaction within: what was thrown is no word on anything
	if step.Classify == nil || errors.As(err, &t) || steps.Classify(err).Marked() {
		return err
	}
	if said := freeze(step.Classify(err)); said != nil && steps.Classify(said).Marked() {
		return said
	}
	return err
}

// outcome is what a body's return means under the lease as it is now.
func (w *worker) outcome(g *grant, l *lease, step *plan.Step, out output, err error) *change {
	if cause := context.Cause(l.ctx); cause != nil && (err != nil || l.lost.Load()) && !definite(l, cause, err) {
		return w.interrupted(g, l, cause, out, err)
	}
	if err != nil {
		if errors.Is(err, steps.ErrDrained) && w.draining.Load() && !l.begun.Load() { // a cursor said so
			return g.handBack(0, "the worker is draining")
		}
		if errors.Is(err, steps.ErrLeaseLost) { // a cursor was refused
			l.lose()
			return w.interrupted(g, l, steps.ErrLeaseLost, out, err)
		}
		return g.failed(step, l.begun.Load(), classify(err))
	}
	return w.completed(g, l, step, out)
}

// definite tells whether an effect's own word on what became of it counts,
// although its context had ended when it came.
func definite(l *lease, cause, err error) bool {
	if !l.begun.Load() || l.lost.Load() || errors.Is(cause, steps.ErrLeaseLost) || err == nil {
		return false
	}
	e := classify(err)
	return e.Marked() && e.Class != steps.ClassUncertain && e.Class != steps.ClassUnknown
}

func classify(err error) *steps.Error {
	e := steps.Classify(err)
	var t thrown
	if errors.As(err, &t) && !e.Marked() {
		e.Code = t.code
	}
	return e
}

// completed moves on from an output.
func (w *worker) completed(g *grant, l *lease, step *plan.Step, out output) *change {
	b, err := out.bytes, out.err
	if err != nil {
		err = steps.Permanent("ENCODE", err)
	} else if len(b) > w.e.config.MaxPayload {
		err = steps.Permanent("TOO_LARGE", fmt.Errorf("%w: the output of step %q has %d bytes, more than %d: store it elsewhere and return a reference",
			ErrTooLarge, step.Name, len(b), w.e.config.MaxPayload))
	}
	if err == nil {
		return w.advance(l.ctx, g, b, "completed")
	}
	e := steps.Classify(err)
	if step.Effect != plan.NoEffect { // it has happened, and what came of it can't be kept
		return g.unsure(person, e)
	}
	return g.dead(e)
}

// interrupted is the end of an attempt whose context was ended.
func (w *worker) interrupted(g *grant, l *lease, cause error, out output, err error) *change {
	switch {
	case errors.Is(cause, steps.ErrLeaseLost), l.lost.Load():
		w.late(g, l, out, err)
		return nil
	case l.begun.Load(): // the drain's patience is at its end
		return g.unsure(firstQuestion(l.step), steps.Classify(steps.Uncertain(fmt.Errorf("the worker stopped before the step returned: %w", err))))
	case g.mode == modeAsk:
		return g.stillUnknown(l.step, time.Millisecond, nil)
	case errors.Is(cause, steps.ErrCancelled):
		return g.handBack(0, "the run is being cancelled")
	}
	return g.handBack(0, "the worker is draining")
}

// keepEvidence is how long a try to keep what came late may take.
const keepEvidence = 10 * time.Second

// late keeps what came after its lease was lost, if an effect may be behind it.
func (w *worker) late(g *grant, l *lease, out output, err error) {
	if l.step == nil || l.step.Effect == plan.NoEffect || (!l.begun.Load() && l.step.Effect != plan.Idempotent) {
		return
	}
	p := db.KeepEvidenceParams{Shard: g.shard, RunID: g.run, Job: g.job, Token: g.token, Attempt: g.attempt, Node: int32(g.node), Path: g.path, Owner: w.owner}
	if err == nil {
		if err = out.err; err == nil && len(out.bytes) <= w.e.config.MaxPayload {
			p.Encoding, p.Output = encodingJSON, out.bytes
		}
	}
	if err != nil {
		e := steps.Classify(err)
		p.Class, p.Code, p.Reason = string(e.Class), clean(e.Code, 64), w.e.redacted(clean(reasonOf(e), maxReason))
	}
	w.later.Go(func() {
		for pause := downSoonest; ; pause = min(2*pause, downLatest) {
			// A worker that ends because it has lost its session has this left to
			// say: a try under way is not cut off by its end.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(w.hard), keepEvidence)
			err := w.e.db.KeepEvidence(ctx, p)
			cancel()
			if err == nil || refused(err) {
				return
			}
			if !sleep(w.hard, spread(pause)) {
				return
			}
		}
	})
}
