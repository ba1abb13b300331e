//go:build unix

package pawl_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/pawlworks/pawl/internal/telemetry"
)

// span is what has become of a span, wherever it went.
type span struct {
	Trace, ID, Parent string
	Name, Kind        string
	Start, End        time.Time
	Failed            bool
	Attrs             map[string]string
	Events            []string
}

// sink is where the spans of a test's processes go.
type sink struct {
	tells    func(*role)              // has a worker send its spans there
	provider *sdktrace.TracerProvider // does the same for the test's own process
	spans    func() []span            // reads them all back
}

// fileSink has each process write each span as soon as it has ended: what is
// killed has told everything that had ended.
func fileSink(t testing.TB) sink {
	t.Helper()
	name := t.TempDir() + "/spans"
	p, err := fileProvider(name)
	if err != nil {
		t.Fatal(err)
	}
	return sink{tells: func(r *role) { r.Spans = name }, provider: p, spans: func() []span { return lines[span](t, name) }}
}

// fileExporter appends spans to a file, a line each, written in one go.
type fileExporter struct{ f *os.File }

func fileProvider(name string) (*sdktrace.TracerProvider, error) {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return sdktrace.NewTracerProvider(sdktrace.WithSyncer(fileExporter{f})), nil
}

func (x fileExporter) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, s := range spans {
		out := span{Trace: s.SpanContext().TraceID().String(), ID: s.SpanContext().SpanID().String(), Name: s.Name(), Kind: s.SpanKind().String(),
			Start: s.StartTime(), End: s.EndTime(), Failed: s.Status().Code == codes.Error, Attrs: map[string]string{}}
		if s.Parent().IsValid() {
			out.Parent = s.Parent().SpanID().String()
		}
		for _, a := range s.Attributes() {
			out.Attrs[string(a.Key)] = a.Value.String()
		}
		for _, e := range s.Events() {
			out.Events = append(out.Events, e.Name)
		}
		b, err := json.Marshal(out)
		if err != nil {
			return err
		}
		if _, err := x.f.Write(append(b, '\n')); err != nil {
			return err
		}
	}
	return nil
}

func (x fileExporter) Shutdown(context.Context) error { return x.f.Close() }

// lines reads a file of JSON lines, of which the last may not be whole yet.
func lines[T any](t testing.TB, name string) (all []T) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		var one T
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%s: %v: %s", name, err, line)
		}
		all = append(all, one)
	}
	return all
}

// told is a span in a line: what it is, whose, what became of it, whether it is an error.
func (s span) told() string {
	words := []string{s.Name}
	for _, key := range []string{string(telemetry.Worker), string(telemetry.Outcome)} {
		if v := s.Attrs[key]; v != "" {
			words = append(words, v)
		}
	}
	if s.Failed {
		words = append(words, "error", s.Attrs[string(telemetry.ErrorType)])
	}
	return strings.Join(words, " ")
}

// story is one trace, in the order in which its spans began.
func (k sink) story(id string) (spans []span, told []string) {
	for _, s := range k.spans() {
		if s.Trace == id {
			spans = append(spans, s)
		}
	}
	slices.SortStableFunc(spans, func(a, b span) int { return a.Start.Compare(b.Start) })
	for _, s := range spans {
		told = append(told, s.told())
	}
	return spans, told
}

// whole fails unless every span but the first has its parent in the trace, which
// began no later than itself.
func whole(t testing.TB, spans []span) {
	t.Helper()
	there := map[string]span{}
	for _, s := range spans {
		there[s.ID] = s
	}
	for i, s := range spans {
		p, ok := there[s.Parent]
		switch {
		case i == 0 && s.Parent == "":
		case !ok:
			t.Errorf("%q is an orphan", s.told())
		case s.Start.Before(p.Start):
			t.Errorf("%q began before its parent %q", s.told(), p.told())
		}
	}
}
