package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/internal/telemetry"
	"github.com/pawlworks/pawl/steps"
)

// A run is one trace: the caller's span, the start, each attempt of each step
// beneath it, the user's own beneath those; an error only where a step failed.
// The log tells the same, with the trace's id and no payload.
func TestTraceRun(t *testing.T) {
	t.Parallel()
	const secret = "s3cret-payload"
	pool := effPool(t, pgtest.Database(t))
	provider, out := traced(t)
	var log logged
	var tries, snoozes, charged atomic.Int64
	w := steps.Declare[string, string]("traced")
	pass := func(_ context.Context, s string) (string, error) { return s, nil }
	def := w.Define(func(f *steps.Flow, in steps.Ref[string]) steps.Ref[string] {
		a := steps.New("first", func(ctx context.Context, s string) (string, error) {
			_, span := provider.Tracer("user").Start(ctx, "user's own")
			span.End()
			return s, nil
		}).Do(f, in)
		b := steps.New("retried", func(_ context.Context, s string) (string, error) {
			if tries.Add(1) == 1 {
				return "", steps.RetryAfter(time.Millisecond, errors.New("the provider hides "+s))
			}
			return s, nil
		}).Do(f, a)
		c := steps.New("snoozed", func(_ context.Context, s string) (string, error) {
			if snoozes.Add(1) == 1 {
				return "", steps.Snooze(time.Millisecond)
			}
			return s, nil
		}).Do(f, b)
		d := steps.New("charged", func(_ context.Context, s string) (string, error) {
			charged.Add(1)
			return "", errors.New("no answer")
		}).LookUp(func(_ context.Context, s string) (steps.Verdict[string], error) { return steps.Happened(s), nil }, time.Second).Do(f, c)
		return steps.New("last", pass).Do(f, d)
	})
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{def}, TracerProvider: provider, Name: "worker-1",
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Redact: func(s string) string { return strings.ReplaceAll(s, secret, "[redacted]") }})
	work(t, e)
	ctx, caller := provider.Tracer("user").Start(context.Background(), "caller")
	r, err := engine.Start(ctx, e, w, secret)
	if err != nil {
		t.Fatal(err)
	}
	caller.End()
	if got := effSuccess(t, e, r); got != secret {
		t.Fatal(got)
	}
	id := caller.SpanContext().TraceID()
	want := []string{"caller", "start traced", "step first completed", "user's own", "step retried retried error RETRY_AFTER", "step retried completed",
		"step snoozed snoozed", "step snoozed completed", "step charged uncertain error UNKNOWN", "ask charged settled", "step last completed"}
	var got []string
	effUntil(t, "all spans", func() bool { // the last one ends a moment after the commit that Wait hears of
		got = nil
		for _, s := range spansOf(out, id) {
			got = append(got, told(s))
		}
		return len(got) >= len(want)
	})
	if !slices.Equal(got, want) {
		t.Errorf("the trace is\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	spans := spansOf(out, id)
	noOrphans(t, spans, trace.SpanID{})
	for _, s := range out.GetSpans() {
		if s.SpanContext.TraceID() != id {
			t.Errorf("%s is of another trace", s.Name)
		}
	}
	attempts := 0
	for _, s := range spans {
		for _, a := range s.Attributes {
			if strings.Contains(a.Value.String(), secret) {
				t.Errorf("%s tells a payload in %s", s.Name, a.Key)
			}
		}
		if strings.Contains(s.Status.Description, secret) {
			t.Errorf("%s tells a payload in its status", s.Name)
		}
		if s.SpanKind != trace.SpanKindConsumer {
			continue
		}
		attempts++
		if s.Parent.SpanID() != spans[1].SpanContext.SpanID() {
			t.Errorf("%s is not beneath the start", s.Name)
		}
		for _, key := range []string{"messaging.system", "messaging.destination.name", "pawl.run_id", "pawl.workflow", "pawl.step", "pawl.place", "pawl.attempt",
			"pawl.token", "pawl.queue", "pawl.worker", "pawl.time_in_queue", "pawl.handed_over", "pawl.state"} {
			if !slices.ContainsFunc(s.Attributes, func(a attribute.KeyValue) bool { return string(a.Key) == key }) {
				t.Errorf("%s lacks %s", s.Name, key)
			}
		}
		if strings.HasPrefix(s.Name, "step charged") && (attributeOf(s, telemetry.EffectKey) == "" || len(s.Events) == 0 || s.Events[0].Name != telemetry.EventEffectBegun) {
			t.Errorf("the effect is not seen: %+v", s)
		}
	}
	if last := spans[len(spans)-1]; attributeOf(last, telemetry.RunOutcome) != "succeeded" || attributeOf(last, telemetry.HandedOver) != "true" {
		t.Errorf("the last step says %+v", last.Attributes)
	}
	if n := len(log.with("level=DEBUG", "run_id="+r.ID, "workflow=traced", "outcome=completed", "trace_id="+id.String(), "token=", "attempt=", "queue=", "worker=worker-1", "place=")); n != 4 {
		t.Errorf("%d lines tell of completed steps, not 4", n)
	}
	if n := len(log.with("level=WARN", "step=retried", "code=RETRY_AFTER", "next=\"it is tried in 1ms\"", "[redacted]")); n != 1 {
		t.Errorf("%d lines tell of the failure:\n%s", n, strings.Join(log.lines(), "\n"))
	}
	if lines := log.with(secret); len(lines) > 0 {
		t.Errorf("a payload is logged: %q", lines)
	}
	for _, h := range effGet(t, e, r.ID).History {
		if strings.Contains(h.Reason, secret) {
			t.Errorf("the history tells %q", h.Reason)
		}
	}
}

// Several runs that are started by one call are a trace each, linked both ways
// with the call's.
func TestTraceMany(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	provider, out := traced(t)
	w := steps.Declare[int, int]("many")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("s", same))}, TracerProvider: provider})
	ctx, caller := provider.Tracer("user").Start(context.Background(), "caller")
	runs, err := engine.StartMany(ctx, e, w, []int{1, 2, 3}, engine.Keys([]string{"a", "b", ""}))
	if err != nil {
		t.Fatal(err)
	}
	again, err := engine.StartMany(ctx, e, w, []int{1, 2}, engine.Keys([]string{"a", "b"}))
	if err != nil || !again[0].Existed {
		t.Fatal(again, err)
	}
	caller.End()
	work(t, e)
	seen := map[trace.TraceID]bool{}
	for _, r := range runs {
		effSuccess(t, e, r)
		id := traceIDOf(t, effGet(t, e, r.ID).TraceParent)
		if seen[id] || id == caller.SpanContext().TraceID() {
			t.Error("the trace is not the run's alone")
		}
		seen[id] = true
		effUntil(t, "its step", func() bool { return len(spansOf(out, id)) == 2 })
		spans := spansOf(out, id)
		noOrphans(t, spans, trace.SpanID{})
		if spans[0].Name != "start many" || !linked(spans[0], caller.SpanContext().TraceID()) {
			t.Errorf("%+v", spans[0])
		}
	}
	for i, s := range spansOf(out, caller.SpanContext().TraceID())[1:] {
		for id := range seen {
			if linked(s, id) != (i == 0) { // the second call started nothing
				t.Errorf("call %d: linked %v", i, linked(s, id))
			}
		}
	}
	if n := len(out.GetSpans()); n != 3+2*3 {
		t.Errorf("%d spans", n)
	}
}

// A run without a trace, or with one that nobody can read, is given one, and keeps it.
func TestTraceBroken(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	provider, out := traced(t)
	w := steps.Declare[int, int]("broken")
	var tries atomic.Int64
	e := effEngine(t, pool, engine.Config{TracerProvider: provider, Workflows: []steps.Definition{w.Of(steps.New("s", func(_ context.Context, n int) (int, error) {
		if tries.Add(1)%2 == 1 {
			return 0, steps.RetryAfter(time.Millisecond, errors.New("again"))
		}
		return n, nil
	}))}})
	for _, parent := range []string{"", "garbage", "00-" + strings.Repeat("0", 32) + "-" + strings.Repeat("0", 16) + "-01", "\x01", strings.Repeat("é", 150)} {
		id := effScan[string](t, pool, "SELECT pawl.start('broken', '7', traceparent => $1, tracestate => 'also=garbage,,,=')", parent)
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- e.Work(ctx) }()
		effState(t, e, id, engine.Succeeded)
		stop()
		if err := effSignal(t, "Work", ended); err != nil {
			t.Fatal(err)
		}
		spans := spansOf(out, traceIDOf(t, effGet(t, e, id).TraceParent))
		noOrphans(t, spans, trace.SpanID{})
		if len(spans) != 3 || spans[0].Name != "run broken" || told(spans[2]) != "step s completed" {
			t.Errorf("%q: %v", parent, spans)
		}
	}
}

// What has rested for more than an hour goes on in another trace, linked both
// ways; what has only waited in small steps stays.
func TestTraceLongWait(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	provider, out := traced(t)
	w := steps.Declare[int, int]("long")
	e := effEngine(t, pool, engine.Config{TracerProvider: provider, Workflows: []steps.Definition{w.Of(steps.New("s", same))}})
	rested, busy := effStart(t, e, w, 1, engine.After(time.Hour)), effStart(t, e, w, 2, engine.After(time.Hour))
	parents := map[string]string{}
	for _, r := range []engine.Run[int]{rested, busy} {
		parents[r.ID] = effGet(t, e, r.ID).TraceParent
	}
	effExec(t, pool, "UPDATE pawl.run SET created_at = created_at - interval '2 hours'")
	effExec(t, pool, `INSERT INTO pawl.history (shard, run_id, job, token, ended_at, node, attempt, request, path, to_state, event)
		SELECT j.shard, j.run_id, j.id, 1, pawl.now(), 0, 0, 1, '', 'pending', 'snoozed' FROM pawl.job j WHERE j.run_id = $1`, busy.ID)
	effExec(t, pool, "UPDATE pawl.job SET due_at = pawl.now(), token = CASE run_id WHEN $1 THEN 1 ELSE 0 END", busy.ID)
	work(t, e)
	effSuccess(t, e, rested)
	effSuccess(t, e, busy)
	if got := effGet(t, e, busy.ID).TraceParent; got != parents[busy.ID] {
		t.Errorf("one that had just moved has another trace")
	}
	now := effGet(t, e, rested.ID).TraceParent
	if now == parents[rested.ID] {
		t.Fatal("one that has rested for two hours goes on in its trace")
	}
	before, after := traceIDOf(t, parents[rested.ID]), traceIDOf(t, now)
	effUntil(t, "its step", func() bool { return len(spansOf(out, after)) == 2 })
	old, fresh := spansOf(out, before), spansOf(out, after)
	noOrphans(t, old, trace.SpanID{})
	noOrphans(t, fresh, trace.SpanID{})
	if len(old) != 2 || old[1].Name != "continued long" || !linked(old[1], after) || fresh[0].Name != "continue long" || !linked(fresh[0], before) {
		t.Errorf("%v\n%v", old, fresh)
	}
}

// Handed back, cancelled, drained: no errors.
func TestTraceHandedBack(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	provider, out := traced(t)
	w := steps.Declare[int, int]("drained")
	began := make(chan struct{}, 9)
	body := func(ctx context.Context, n int) (int, error) {
		began <- struct{}{}
		<-ctx.Done()
		return 0, ctx.Err()
	}
	e := effEngine(t, pool, engine.Config{TracerProvider: provider, Drain: time.Millisecond, Workflows: []steps.Definition{w.Of(steps.New("s", body))}})
	r := effStart(t, e, w, 1)
	id := traceIDOf(t, effGet(t, e, r.ID).TraceParent)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Work(ctx) }()
	effSignal(t, "the body", began)
	stop()
	if err := effSignal(t, "Work", ended); err != nil {
		t.Fatal(err)
	}
	work(t, e)
	effSignal(t, "the body again", began)
	if err := e.Cancel(context.Background(), r.ID, engine.By{Actor: "a", Reason: "b"}); err != nil {
		t.Fatal(err)
	}
	effState(t, e, r.ID, engine.Cancelled)
	effUntil(t, "its spans", func() bool { return len(spansOf(out, id)) == 3 })
	var got []string
	for _, s := range spansOf(out, id) {
		got = append(got, told(s))
	}
	if want := []string{"start drained", "step s handed_back", "step s cancelled"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

// The attempt whose lease was lost says so; the one that took it back tells the lapse.
func TestTraceLapse(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	provider, out := traced(t)
	w := steps.Declare[int, int]("lapsed")
	began, done := make(chan struct{}, 9), make(chan struct{})
	var tries atomic.Int64
	e := effEngine(t, pool, engine.Config{TracerProvider: provider, Workflows: []steps.Definition{w.Of(steps.New("s", func(ctx context.Context, n int) (int, error) {
		if tries.Add(1) == 1 {
			began <- struct{}{}
			<-done
		}
		return n, nil
	}))}})
	r := effStart(t, e, w, 1)
	id := traceIDOf(t, effGet(t, e, r.ID).TraceParent)
	work(t, e)
	effSignal(t, "the body", began)
	effExec(t, pool, "UPDATE pawl.job SET expires_at = pawl.now() - interval '1 second' WHERE run_id = $1", r.ID)
	effSuccess(t, e, r)
	close(done)
	effUntil(t, "its spans", func() bool { return len(spansOf(out, id)) == 4 })
	spans := spansOf(out, id)
	noOrphans(t, spans, trace.SpanID{})
	var got []string
	for _, s := range spans {
		got = append(got, told(s))
	}
	slices.Sort(got)
	if want := []string{"lapsed s lapsed error LEASE_EXPIRED", "start lapsed", "step s completed", "step s lease_lost"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

// Unsampled runs leave nothing, and a start that fails says so.
func TestTraceUnsampled(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	provider, out := traced(t, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	w := steps.Declare[int, int]("unsampled")
	e := effEngine(t, pool, engine.Config{TracerProvider: provider, Workflows: []steps.Definition{w.Of(steps.New("s", same))}})
	work(t, e)
	effSuccess(t, e, effStart(t, e, w, 1))
	effSuccess(t, e, effHandle(t, e, w, effScan[string](t, pool, "SELECT pawl.start('unsampled', '7')")))
	if n := len(out.GetSpans()); n > 0 {
		t.Errorf("%d spans", n)
	}
	provider, out = traced(t)
	e = effEngine(t, pool, engine.Config{TracerProvider: provider})
	if _, err := engine.Start(context.Background(), e, steps.Declare[int, int]("nobody's"), 1); err == nil {
		t.Fatal("started")
	}
	if spans := out.GetSpans(); len(spans) != 1 || told(spans[0]) != "start nobody's error UNKNOWN_WORKFLOW" {
		t.Errorf("%v", spans)
	}
}
