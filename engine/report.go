package engine

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/telemetry"
)

// report tells the trace and the log what became of an attempt. A nil change:
// its lease was lost. It is called when that is durable, and never with a payload.
func (w *worker) report(g *grant, l *lease, c *change, a answer) {
	outcome, why := "lease_lost", ""
	switch {
	case c == nil, a.verdict == verdictLost:
		a.state = ""
	case a.verdict != verdictDone:
		outcome, a.state = "abandoned", ""
	default:
		if outcome, why = c.event, c.reason; a.state == stateGone && c.to != stateGone && !c.advance {
			outcome = "cancelled"
		}
	}
	l.ended(c, outcome, a.state, why)
	w.e.metrics.ended(g, l, c, a, outcome)
	switch {
	case outcome == "lease_lost":
		w.log.Warn("pawl: an attempt has lost its lease, and does not count", append(w.about(g, l), telemetry.LogOutcome, outcome,
			telemetry.LogNext, "whoever has the lease now carries on")...)
	case outcome == "abandoned":
		w.log.Warn("pawl: the process stops before the database has said what became of an attempt", append(w.about(g, l), telemetry.LogOutcome, outcome,
			telemetry.LogNext, "its lease runs out, if it was not written")...)
	case a.state == stateDead || a.state == stateUncertain && c.delay < 0:
		w.log.Error("pawl: a person must act: "+what(c, a.state), w.said(g, l, c, a.state)...)
	case c.failure(), c.class != "" && c.event != "snoozed":
		w.log.Warn("pawl: an attempt failed", w.said(g, l, c, a.state)...)
	case w.log.Enabled(context.Background(), slog.LevelDebug):
		w.log.Debug("pawl: "+c.event, w.said(g, l, c, a.state)...)
	}
}

func what(c *change, state string) string {
	if state == stateDead {
		return "a step is dead, and its run has failed"
	}
	return "whether a step's effect has happened is not known"
}

// about is what every line says of where an attempt stands.
func (w *worker) about(g *grant, l *lease) []any {
	as := []any{telemetry.LogRunID, g.run, telemetry.LogWorkflow, g.bind.workflow, telemetry.LogStep, g.name(), telemetry.LogPlace, g.place(),
		telemetry.LogAttempt, g.attempt, telemetry.LogToken, g.token, telemetry.LogQueue, g.queue()}
	if l != nil {
		if span := l.traceOf(); span != nil && span.SpanContext().HasTraceID() {
			as = append(as, telemetry.LogTraceID, span.SpanContext().TraceID().String())
		}
	}
	return as
}

func (w *worker) said(g *grant, l *lease, c *change, state string) []any {
	as := append(w.about(g, l), telemetry.LogOutcome, c.event, telemetry.LogState, state, telemetry.LogNext, nextOf(c, state))
	if c.class != "" {
		as = append(as, telemetry.LogClass, c.class, telemetry.LogCode, c.code)
	}
	if c.reason != "" {
		as = append(as, telemetry.LogReason, c.reason)
	}
	if s := g.step(); s != nil && s.Owner != "" && c.failure() {
		as = append(as, telemetry.LogOwner, s.Owner)
	}
	return as
}

// nextOf says what happens next.
func nextOf(c *change, state string) string {
	switch {
	case state == stateDead:
		return "nobody tries it again by itself: a person replays or cancels the run"
	case state == stateUncertain && c.delay < 0:
		return "a person must say whether it happened"
	case state == stateUncertain && c.delay == 0:
		return "its outcome is looked up at once"
	case state == stateUncertain:
		return "its outcome is looked up in " + c.delay.Round(time.Millisecond).String()
	case state == statePending && c.delay > 0:
		return "it is tried in " + c.delay.Round(time.Millisecond).String()
	case state == statePending:
		return "it is due at once"
	case state == stateRunning:
		return "the next step is leased to this worker"
	}
	return "the run has " + runOutcome(c, state)
}

// reportLapse tells of an attempt that was taken back.
func (w *worker) reportLapse(r db.RecoverRow) {
	at := w.spot(*r.Definition, int(*r.Node), *r.Path)
	ctx := w.traceLapse(r, at)
	w.e.metrics.lapsed(r, at)
	next := "it is due in " + (time.Duration(*r.DueInMs) * time.Millisecond).String()
	switch *r.State {
	case stateDead:
		next = "nobody tries it again by itself: a person replays or cancels the run"
	case stateUncertain:
		next = "its effect may have happened: its outcome is looked up, or a person must say"
	case stateGone:
		next = "the run has been cancelled"
	}
	as := []any{telemetry.LogRunID, *r.RunID, telemetry.LogWorkflow, *r.Workflow, telemetry.LogStep, at.step, telemetry.LogPlace, at.place, telemetry.LogQueue, at.queue,
		telemetry.LogAttempt, *r.Attempt, telemetry.LogToken, *r.Token, telemetry.LogOutcome, "lapsed", telemetry.LogState, *r.State,
		telemetry.LogClass, "lapse", telemetry.LogCode, "LEASE_EXPIRED", telemetry.LogNext, next}
	if ctx.HasTraceID() {
		as = append(as, telemetry.LogTraceID, ctx.TraceID().String())
	}
	w.log.Warn("pawl: a lease expired, and its job was taken back", as...)
}

// spot is where a job stands, by the names of its graph.
type spot struct{ step, place, queue string }

// spot leaves out what this process doesn't know.
func (w *worker) spot(def int64, node int, path string) (at spot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at.step = "?"
	if b := w.bindings[def]; b != nil {
		at.step = b.graph.name(node)
		if node < b.end() && b.nodes[node].step != nil {
			at.queue = b.nodes[node].step.Queue
		}
	}
	at.place = placeOf(path, at.step)
	return at
}

// redacted is an error's text as it may be stored, logged and traced.
func (e *Engine) redacted(text string) (out string) {
	if e.config.Redact == nil || text == "" {
		return text
	}
	defer func() {
		if p := recover(); p != nil { // nothing rather than too much
			e.log.Error("pawl: Config.Redact panicked; the text was left out", "panic", p, "stack", string(debug.Stack()))
			out = "(left out: Config.Redact panicked)"
		}
	}()
	return clean(e.config.Redact(text), maxReason)
}
