package engine_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/telemetry"
	"github.com/pawlworks/pawl/steps"
)

// traced is a provider that keeps its spans in memory.
func traced(t testing.TB, opts ...sdktrace.TracerProviderOption) (*sdktrace.TracerProvider, *tracetest.InMemoryExporter) {
	t.Helper()
	out := tracetest.NewInMemoryExporter()
	return sdktrace.NewTracerProvider(append(opts, sdktrace.WithSyncer(out))...), out
}

// spansOf are the spans of one trace, in order of their start.
func spansOf(out *tracetest.InMemoryExporter, id trace.TraceID) (spans tracetest.SpanStubs) {
	for _, s := range out.GetSpans() {
		if s.SpanContext.TraceID() == id {
			spans = append(spans, s)
		}
	}
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return spans
}

func attributeOf(s tracetest.SpanStub, key attribute.Key) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

// told is a span in one line: what it is, what became of it, whether it is an error.
func told(s tracetest.SpanStub) string {
	line := strings.TrimSpace(s.Name + " " + attributeOf(s, telemetry.Outcome))
	if s.Status.Code == codes.Error {
		line += " error " + attributeOf(s, telemetry.ErrorType)
	}
	return line
}

// noOrphans: every parent is there, or is the one that is known from elsewhere.
func noOrphans(t testing.TB, spans tracetest.SpanStubs, remote trace.SpanID) {
	t.Helper()
	there := map[trace.SpanID]tracetest.SpanStub{}
	for _, s := range spans {
		there[s.SpanContext.SpanID()] = s
	}
	for _, s := range spans {
		p, ok := there[s.Parent.SpanID()]
		switch {
		case s.Parent.SpanID() == remote || !s.Parent.IsValid() && !remote.IsValid():
		case !ok:
			t.Errorf("%s has no parent", s.Name)
		case s.StartTime.Before(p.StartTime):
			t.Errorf("%s began before its parent %s", s.Name, p.Name)
		}
	}
}

// logged is a logger's output, to be looked at while it is written.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSpace(l.text.String()), "\n")
}

// with are the lines that contain all of these.
func (l *logged) with(parts ...string) (lines []string) {
	for _, line := range l.lines() {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			lines = append(lines, line)
		}
	}
	return lines
}

func linked(s tracetest.SpanStub, id trace.TraceID) bool {
	return slices.ContainsFunc(s.Links, func(l sdktrace.Link) bool { return l.SpanContext.TraceID() == id })
}

func traceIDOf(t testing.TB, traceparent string) trace.TraceID {
	t.Helper()
	parts := strings.Split(traceparent, "-")
	if len(parts) != 4 {
		t.Fatalf("%q is no trace context", traceparent)
	}
	id, err := trace.TraceIDFromHex(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func effHandle[I, O any](t testing.TB, e *engine.Engine, w steps.Workflow[I, O], id string) engine.Run[O] {
	t.Helper()
	r, err := engine.Handle(context.Background(), e, w, id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
