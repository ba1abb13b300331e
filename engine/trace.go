package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/plan"
	"github.com/pawlworks/pawl/internal/telemetry"
)

// The trace of a run: the context of the span that started it is stored with
// it, and every attempt is a child of that, in whatever process and however
// often the run changes hands.
//
// Invariants: nothing here fails, delays or repeats work: what can't be read is
// left out, and a statement for the trace's sake is given up soon. A span of an
// attempt ends when what became of it is durable. Status error means that a step failed.

// longWait is for how long a run may rest before it goes on in another trace.
const longWait = time.Hour

// traceWithin is what a statement for the trace's sake may take.
const traceWithin = 2 * time.Second

func tracerOf(p trace.TracerProvider) trace.Tracer {
	if p == nil {
		p = otel.GetTracerProvider() // follows one that is set later
	}
	return p.Tracer(telemetry.Scope)
}

// carried is a trace context as it is stored.
type carried struct{ parent, state string }

func (c *carried) Get(key string) string {
	switch key {
	case "traceparent":
		return c.parent
	case "tracestate":
		return c.state
	}
	return ""
}

func (c *carried) Set(key, value string) {
	switch key {
	case "traceparent":
		c.parent = clean(value, 200)
	case "tracestate":
		c.state = clean(value, 2000)
	}
}

func (c *carried) Keys() []string { return []string{"traceparent", "tracestate"} }

func carriedBy(ctx context.Context) (c carried) {
	propagation.TraceContext{}.Inject(ctx, &c)
	return c
}

// span is the context that is stored; an invalid one if there is none, or garbage.
func (c carried) span() trace.SpanContext {
	if c.parent == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), &c))
}

func under(parent trace.SpanContext) context.Context {
	if !parent.IsValid() {
		return context.Background()
	}
	return trace.ContextWithRemoteSpanContext(context.Background(), parent)
}

// sending is the span of a call that starts runs. One that starts several gives
// each a trace of its own, linked with it.
type sending struct {
	span            trace.Span
	runs            []trace.Span
	parents, states []string
}

func (e *Engine) sending(ctx context.Context, workflow string, n int) *sending {
	before := trace.SpanContextFromContext(ctx)
	ctx, span := e.tracer.Start(ctx, "start "+workflow, trace.WithSpanKind(trace.SpanKindProducer))
	s := &sending{span: span}
	if span.IsRecording() {
		span.SetAttributes(telemetry.MessagingSystem.String(telemetry.System), telemetry.MessagingOperation.String("start"),
			telemetry.MessagingOperationType.String("send"), telemetry.Workflow.String(workflow))
		if n > 1 {
			span.SetAttributes(telemetry.MessagingBatch.Int(n))
		}
	}
	if n == 1 || span.SpanContext().Equal(before) { // the same: no SDK is there
		s.carry(ctx)
		return s
	}
	link := trace.WithLinks(trace.Link{SpanContext: span.SpanContext()})
	for range n {
		ctx, run := e.tracer.Start(ctx, "start "+workflow, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindProducer), link)
		s.runs = append(s.runs, run)
		s.carry(ctx)
	}
	return s
}

func (s *sending) carry(ctx context.Context) {
	c := carriedBy(ctx)
	s.parents, s.states = append(s.parents, c.parent), append(s.states, c.state)
}

// sent ends it. The span of a run that had been started before, or was not, is not told of.
func (s *sending) sent(workflow string, runs []started, err error) {
	defer s.span.End()
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
		s.span.SetAttributes(telemetry.ErrorType.String(startErrorType(err)))
		return
	}
	if len(runs) == 1 && s.span.IsRecording() {
		s.span.SetAttributes(telemetry.RunID.String(runs[0].id.String()), telemetry.MessagingConversation.String(runs[0].id.String()),
			telemetry.Existed.Bool(runs[0].existed))
	}
	for i, run := range s.runs {
		if runs[i].existed {
			continue
		}
		if run.IsRecording() {
			run.SetAttributes(telemetry.MessagingSystem.String(telemetry.System), telemetry.MessagingOperation.String("start"),
				telemetry.MessagingOperationType.String("create"), telemetry.Workflow.String(workflow), telemetry.RunID.String(runs[i].id.String()),
				telemetry.MessagingConversation.String(runs[i].id.String()))
			s.span.AddLink(trace.Link{SpanContext: run.SpanContext()})
		}
		run.End()
	}
}

func startErrorType(err error) string {
	switch state := sqlState(err); {
	case errors.Is(err, ErrUnknownWorkflow):
		return "UNKNOWN_WORKFLOW"
	case state != "":
		return state
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "CANCELLED"
	}
	return "_OTHER"
}

// follow finds the trace that a claimed run goes on in. One that has none gets
// one, and one that has rested for long another, linked both ways.
func (w *worker) follow(g *grant) {
	old := g.trace.span()
	g.parent = old
	if old.IsValid() && (!old.IsSampled() || g.grantedAt.Sub(g.createdAt) <= longWait || !w.rested(g)) {
		return
	}
	verb, opts := "run ", []trace.SpanStartOption{trace.WithNewRoot()}
	if old.IsValid() {
		verb, opts = "continue ", append(opts, trace.WithLinks(trace.Link{SpanContext: old}))
	}
	ctx, span := w.e.tracer.Start(context.Background(), verb+g.bind.workflow, opts...)
	if !span.SpanContext().IsValid() { // no SDK is there
		return
	}
	c := carriedBy(ctx)
	within, cancel := context.WithTimeout(w.hard, traceWithin)
	defer cancel()
	n, err := w.e.db.Retrace(within, db.RetraceParams{Shard: g.shard, ID: g.run, Traceparent: c.parent, Tracestate: c.state, Was: g.trace.parent})
	if err != nil || n == 0 { // later attempts would not know of it
		return
	}
	about := []attribute.KeyValue{telemetry.RunID.String(g.run.String()), telemetry.MessagingConversation.String(g.run.String()),
		telemetry.Workflow.String(g.bind.workflow)}
	if old.IsValid() {
		_, last := w.e.tracer.Start(under(old), "continued "+g.bind.workflow, trace.WithLinks(trace.Link{SpanContext: span.SpanContext()}))
		last.SetAttributes(about...)
		last.End()
	}
	span.SetAttributes(about...)
	span.End()
	g.trace, g.parent = c, span.SpanContext()
}

// rested tells whether a run has not moved for long. It is asked for runs older
// than that alone.
func (w *worker) rested(g *grant) bool {
	ctx, cancel := context.WithTimeout(w.hard, traceWithin)
	defer cancel()
	at, err := w.e.db.LastMoved(ctx, db.LastMovedParams{Shard: g.shard, ID: g.run})
	return err == nil && g.grantedAt.Sub(at) > longWait
}

// open begins the span of an attempt.
func (w *worker) open(g *grant, l *lease) {
	w.e.metrics.leased(g)
	_, span := w.e.tracer.Start(under(g.parent), g.spanName(), asConsumer...)
	l.traced(span)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(g.described(w.e.config.Name, "process")...)
	queued := g.grantedAt.Sub(g.due).Seconds()
	if g.hops > 0 {
		queued = 0
	}
	span.SetAttributes(telemetry.TimeInQueue.Float64(max(queued, 0)), telemetry.HandedOver.Bool(g.hops > 0))
	if s := g.step(); s != nil && s.Effect != plan.NoEffect {
		span.SetAttributes(telemetry.EffectKey.String(g.keyText()))
	}
}

var asConsumer = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer)}

func (g *grant) spanName() string {
	switch g.mode {
	case modeAsk:
		return "ask " + g.name()
	case modeSettled:
		return "settled " + g.name()
	}
	return g.bind.nodes[g.node].spanName
}

// described is what every span says of where it stands.
func (g *grant) described(worker, kind string) []attribute.KeyValue {
	operation := "run"
	if g.mode == modeAsk {
		operation = "ask"
	}
	id := g.run.String()
	as := []attribute.KeyValue{
		telemetry.MessagingSystem.String(telemetry.System), telemetry.MessagingOperation.String(operation), telemetry.MessagingOperationType.String(kind),
		telemetry.MessagingConversation.String(id), telemetry.RunID.String(id), telemetry.Workflow.String(g.bind.workflow), telemetry.Step.String(g.name()),
		telemetry.Place.String(g.place()), telemetry.Attempt.Int(int(g.attempt)), telemetry.Token.Int64(g.token), telemetry.Mode.String(g.mode),
		telemetry.Worker.String(worker),
	}
	if q := g.queue(); q != "" {
		as = append(as, telemetry.MessagingDestination.String(q), telemetry.Queue.String(q))
	}
	return as
}

func (g *grant) place() string { return placeOf(g.path, g.name()) }

// placeOf is where in the graph: the step's path and its name.
func placeOf(path, step string) string {
	if path == "" {
		return step
	}
	return path + "/" + step
}

func (g *grant) queue() string {
	if s := g.step(); s != nil {
		return s.Queue
	}
	return ""
}

// ended ends the span of an attempt with what became of it.
func (l *lease) ended(c *change, outcome, state, why string) {
	span := l.traceOf()
	if span == nil {
		return
	}
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(telemetry.Outcome.String(outcome))
	if state == "" {
		return
	}
	span.SetAttributes(telemetry.State.String(state))
	if run := runOutcome(c, state); run != "" {
		span.SetAttributes(telemetry.RunOutcome.String(run))
	}
	if state == statePending && c.delay > 0 {
		span.SetAttributes(telemetry.RetryIn.Float64(c.delay.Seconds()))
	}
	if c.class != "" {
		span.SetAttributes(telemetry.ErrorClass.String(c.class))
	}
	if !c.failure() {
		return
	}
	fail(span, c.code, why)
}

// fail gives a span the status error: the first line of the reason, and all of it as an event.
func fail(span trace.Span, code, why string) {
	line, _, _ := strings.Cut(why, "\n")
	span.SetStatus(codes.Error, line)
	if code == "" {
		code = "_OTHER"
	}
	span.SetAttributes(telemetry.ErrorType.String(code))
	span.AddEvent(telemetry.EventException, trace.WithAttributes(telemetry.ExceptionMessage.String(why)))
}

// failure tells whether the change says that a step has failed.
func (c *change) failure() bool {
	switch c.event {
	case "retried", "dead", "uncertain":
		return c.class != ""
	}
	return false
}

// runOutcome is how the run has ended with a change, if it has.
func runOutcome(c *change, state string) string {
	switch {
	case state == stateDead:
		return "failed"
	case state == stateGone && c.to == stateGone:
		return "succeeded"
	case state == stateGone:
		return "cancelled"
	}
	return ""
}

// traceLapse tells of an attempt whose lease ran out, as nobody else will.
func (w *worker) traceLapse(r db.RecoverRow, at spot) trace.SpanContext {
	parent := carried{*r.Traceparent, *r.Tracestate}.span()
	if !parent.IsValid() {
		return parent
	}
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindInternal)}
	if r.GrantedAt != nil {
		opts = append(opts, trace.WithTimestamp(*r.GrantedAt))
	}
	_, span := w.e.tracer.Start(under(parent), "lapsed "+at.step, opts...)
	defer span.End()
	if span.IsRecording() {
		id := r.RunID.String()
		span.SetAttributes(telemetry.MessagingSystem.String(telemetry.System), telemetry.RunID.String(id), telemetry.MessagingConversation.String(id),
			telemetry.Workflow.String(*r.Workflow), telemetry.Step.String(at.step), telemetry.Place.String(at.place),
			telemetry.Attempt.Int(int(*r.Attempt)), telemetry.Token.Int64(*r.Token), telemetry.Mode.String(*r.Mode),
			telemetry.Worker.String(w.e.config.Name), telemetry.Outcome.String("lapsed"), telemetry.State.String(*r.State),
			telemetry.RetryIn.Float64(float64(*r.DueInMs)/1000), telemetry.ErrorClass.String("lapse"))
		if at.queue != "" {
			span.SetAttributes(telemetry.MessagingDestination.String(at.queue), telemetry.Queue.String(at.queue))
		}
		fail(span, "LEASE_EXPIRED", "the lease ran out, or the session of its worker did: taken back")
	}
	return parent
}
