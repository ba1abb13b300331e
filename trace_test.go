//go:build unix

package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/telemetry"
	"github.com/pawlworks/pawl/steps"
)

// What a run's trace tells when processes die, stand still and are stopped. The
// trace is read back from where the processes sent it.
//
//	go test . -run TestTrace -count=1 -v
func TestTrace(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(*testing.T)
	}{
		{"CrashToEnd", func(t *testing.T) { traceCrash(t, fileSink(t)) }},
		{"CrashToEnd_OTLP", func(t *testing.T) { traceCrash(t, otlpSink(t)) }},
		{"NoErrors", func(t *testing.T) { traceCalm(t, fileSink(t)) }},
		{"Garbage", traceGarbage},
		{"CollectorDown", traceCollectorDown},
		{"CollectorSlow", traceCollectorSlow},
	} {
		t.Run(c.name, func(t *testing.T) { t.Parallel(); c.test(t) })
	}
}

func init() {
	flows["traced"] = func(h *hand) steps.Definition {
		return contract("traced").Define(func(f *steps.Flow, o steps.Ref[order]) steps.Ref[receipt] {
			prepared := steps.New("prepare", h.reserves).Do(f, o)
			next := func(r steps.Ref[receipt]) steps.Ref[order] {
				return steps.Map2(o, r, func(o order, _ receipt) order { return o })
			}
			retried := steps.New("fragile", h.fragile, steps.Retry{Attempts: 3, Delay: time.Millisecond, MaxDelay: 10 * time.Millisecond}).Do(f, next(prepared))
			crashed := steps.New("crash", h.acts("crash")).Do(f, next(retried))
			paused := steps.New("paused", h.acts("paused")).Do(f, next(crashed))
			return steps.New("charge", h.acts("charge")).LookUp(h.find, lateArrival, quick).Do(f, next(paused))
		})
	}
	flows["calm"] = func(h *hand) steps.Definition {
		return contract("calm").Define(func(f *steps.Flow, o steps.Ref[order]) steps.Ref[receipt] {
			snoozed := steps.New("snoozed", h.snoozes).Do(f, o)
			return steps.New("drained", h.acts("drained")).Do(f, steps.Map2(o, snoozed, func(o order, _ receipt) order { return o }))
		})
	}
}

// reserves has a span of the user's own beneath the step's.
func (h *hand) reserves(ctx context.Context, o order) (receipt, error) {
	ctx, span := otel.Tracer("shop").Start(ctx, "reserve stock", trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	return h.do(ctx, "prepare", o)
}

// snoozes comes back once.
func (h *hand) snoozes(ctx context.Context, o order) (receipt, error) {
	r, err := h.do(ctx, "snoozed", o)
	if err == nil && r.No == 1 {
		return r, steps.Snooze(time.Millisecond)
	}
	return r, err
}

// by matches a worker's requests for a step's effect.
func by(worker, step string) func(call) bool {
	return func(c call) bool { return c.Kind == "effects" && c.Worker == worker && c.Step == step }
}

// traceCrash follows a run through a retry, a kill -9, a recovery, a process that
// stands still and loses its lease, and an effect in doubt that is looked up.
func traceCrash(t *testing.T, k sink) {
	s := newStage(t, "traced")
	worker := func(name string) *process {
		r := role{Name: name, Slots: 1}
		k.tells(&r)
		return s.worker(r)
	}
	s.target.refuses(func(c call) int {
		if c.Step == "fragile" && c.Attempt == 1 {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	s.target.manners = map[string]manner{"o": losesAnswer}
	dies, stands := s.target.hold(by("a", "crash")), s.target.hold(by("b", "paused"))

	ctx, caller := k.provider.Tracer("shop").Start(t.Context(), "POST /orders", trace.WithSpanKind(trace.SpanKindServer))
	e, err := engine.New(ctx, s.pool, engine.Config{Workflows: []steps.Definition{flows["traced"](&hand{})}, TracerProvider: k.provider})
	if err != nil {
		t.Fatal(err)
	}
	r, err := engine.Start(ctx, e, contract("traced"), order{"o"})
	if err != nil {
		t.Fatal(err)
	}
	caller.End()
	id := caller.SpanContext().TraceID().String()

	a := worker("a")
	dies.wait(t)
	s.until("the spans of the steps before the crash have left", func() bool { spans, _ := k.story(id); return len(spans) == 6 })
	a.kill(t)
	b := worker("b")
	stands.wait(t)
	b.pause(t)
	c := worker("c")
	s.wait(r)
	b.resume(t)

	want := []string{
		"POST /orders",
		"start traced",
		"step prepare a completed",
		"reserve stock",
		"step fragile a retried error FRAGILE",
		"step fragile a completed",
		"lapsed crash b lapsed error LEASE_EXPIRED",
		"step crash b completed",
		"step paused b lease_lost",
		"lapsed paused c lapsed error LEASE_EXPIRED",
		"step paused c completed",
		"step charge c uncertain error NETWORK",
		"ask charge c settled",
	}
	var spans []span
	var told []string
	s.until(fmt.Sprintf("%d spans have come", len(want)), func() bool { spans, told = k.story(id); return len(spans) >= len(want) })
	stands.release()
	b.stop(t)
	c.stop(t)
	spans, told = k.story(id)
	told = slices.DeleteFunc(told, func(line string) bool { return line == "ask charge c unknown" }) // how often it asks depends on the clock
	// What was lost began a moment before or after it was taken to begin by who
	// took it back: in the two processes' own time and the database's.
	i, j := slices.Index(told, want[8]), slices.Index(told, want[9])
	if i == j+1 && j >= 0 {
		told[i], told[j] = told[j], told[i]
	}
	if !slices.Equal(told, want) {
		t.Errorf("the trace is\n%s\nnot\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
	whole(t, spans)
	for _, sp := range k.spans() {
		if sp.Trace != id {
			t.Errorf("%q is of another trace", sp.told())
		}
	}
	start := slices.IndexFunc(spans, func(s span) bool { return s.Kind == "producer" })
	for _, sp := range spans {
		if sp.End.Before(sp.Start) {
			t.Errorf("%q ended before it began", sp.told())
		}
		if sp.Attrs[string(telemetry.Step)] == "" {
			continue
		}
		if start < 0 || sp.Parent != spans[start].ID {
			t.Errorf("%q is not beneath the start", sp.told())
		}
		for _, key := range []string{"messaging.system", "pawl.run_id", "pawl.workflow", "pawl.place", "pawl.attempt", "pawl.token", "pawl.worker", "pawl.queue", "pawl.outcome"} {
			if sp.Attrs[key] == "" {
				t.Errorf("%q lacks %s: %v", sp.told(), key, sp.Attrs)
			}
		}
		if sp.Name == "step charge" && !slices.Contains(sp.Events, telemetry.EventEffectBegun) {
			t.Errorf("%q does not tell of the effect: %v", sp.told(), sp.Events)
		}
	}
}

// traceCalm follows a run through a snooze, a drain, a hand-back and a
// cancellation, none of which is an error.
func traceCalm(t *testing.T, k sink) {
	s := newStage(t, "calm")
	worker := func(name string) *process {
		r := role{Name: name, Slots: 1, Drain: 100 * time.Millisecond}
		k.tells(&r)
		return s.worker(r)
	}
	first, second := s.target.hold(by("a", "drained")), s.target.hold(by("b", "drained"))
	r := s.start("calm", "o")
	a := worker("a")
	first.wait(t)
	a.terminate(t)
	a.left(t)
	b := worker("b")
	second.wait(t)
	if err := s.e.Cancel(t.Context(), r.ID, engine.By{Actor: "clerk", Reason: "no longer wanted"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.outcome(r); !errors.Is(err, engine.ErrCancelled) {
		t.Fatalf("the run should be cancelled: %v", err)
	}
	b.stop(t)
	var told []string
	spans := k.spans()
	for _, sp := range spans {
		told = append(told, sp.told())
	}
	whole(t, spans)
	want := []string{"run calm", "step snoozed a snoozed", "step snoozed a completed", "step drained a handed_back", "step drained b cancelled"}
	if !slices.Equal(told, want) {
		t.Errorf("the trace is\n%s\nnot\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
}

// traceGarbage: what can't be read as a trace context changes the trace alone.
func traceGarbage(t *testing.T) {
	s := newStage(t, "single-traced")
	k := fileSink(t)
	r := role{Name: "w"}
	k.tells(&r)
	s.target.refuses(func(c call) int {
		if c.Attempt == 1 {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	w := s.worker(r)
	var stories []string
	for i, parent := range []any{nil, "", "garbage", "00-" + strings.Repeat("0", 32) + "-" + strings.Repeat("0", 16) + "-01", "ff-" + strings.Repeat("g", 3000), "\x01\n", "ünreadable"} {
		var id string
		s.scan("SELECT pawl.start('single-traced', $1, traceparent => $2::text, tracestate => $2::text)", []any{fmt.Sprintf(`{"Name":"o%d"}`, i), parent}, &id)
		h, err := engine.Handle(t.Context(), s.e, contract("single-traced"), id)
		if err != nil {
			t.Fatal(err)
		}
		s.wait(h)
		stories = append(stories, s.story(id))
		if stories[i] != stories[0] {
			t.Errorf("with the trace context %q the history is\n%s\nand not\n%s", parent, stories[i], stories[0])
		}
	}
	w.stop(t)
	traces := map[string]int{}
	for _, sp := range k.spans() {
		traces[sp.Trace]++
	}
	for id, n := range traces {
		if _, told := k.story(id); n != 3 {
			t.Errorf("a run's trace is\n%s", strings.Join(told, "\n"))
		}
	}
	if len(traces) != len(stories) {
		t.Errorf("%d runs have %d traces", len(stories), len(traces))
	}
}

func init() {
	single("single-traced", func(h *hand) steps.Step[order, receipt] {
		return steps.New("fragile", h.fragile, steps.Retry{Attempts: 3, Delay: time.Millisecond, MaxDelay: 10 * time.Millisecond})
	})
}

// traceCollectorDown: nothing listens where the spans are to go.
func traceCollectorDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	traceWithout(t, "http://"+address)
}

// traceCollectorSlow: who listens there takes everything, and never answers.
func traceCollectorSlow(t *testing.T) {
	url, asked := deafCollector(t)
	traceWithout(t, url)
	if !asked() {
		t.Error("the collector was never asked")
	}
}

// traceWithout runs more spans than an exporter keeps, none of which can leave.
func traceWithout(t *testing.T, endpoint string) {
	s := newStage(t, "traced-chain")
	const runs = 600
	for i := range runs {
		s.start("traced-chain", fmt.Sprint("o", i))
	}
	w := s.worker(role{Name: "w", Slots: 20, Env: otlpTo(endpoint)})
	s.succeed(runs)
	w.stop(t)
	var odd int
	s.scan("SELECT count(*) FROM pawl.history WHERE event <> 'completed' OR attempt > 1", nil, &odd)
	if odd > 0 {
		t.Errorf("%d attempts went otherwise than without a collector", odd)
	}
}

func init() {
	flows["traced-chain"] = func(*hand) steps.Definition {
		return contract("traced-chain").Define(func(f *steps.Flow, o steps.Ref[order]) steps.Ref[receipt] {
			var last steps.Ref[receipt]
			for i := range chainLinks {
				last = steps.New(fmt.Sprint("link-", i), func(_ context.Context, o order) (receipt, error) { return receipt{Order: o.Name}, nil }).Do(f, o)
			}
			return last
		})
	}
}
