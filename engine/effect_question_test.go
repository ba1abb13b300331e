package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

var effAsk = steps.Declare[int, string]("asked")

// effUnsure is a body that never knows what became of its effect, but on the
// attempts named.
func effUnsure(calls *atomic.Int64, good ...int64) func(context.Context, int) (string, error) {
	return func(context.Context, int) (string, error) {
		n := calls.Add(1)
		for _, g := range good {
			if n == g {
				return "receipt", nil
			}
		}
		return "", errors.New("no answer")
	}
}

// effQuestions is a budget of questions whose delays a test can wait for.
func effQuestions(n int) steps.Retry {
	return steps.Retry{Attempts: n, Delay: 10 * time.Millisecond, MaxDelay: 50 * time.Millisecond}
}

// "Not found" counts only when the question was put later than the window
// after the outcome became unknown.
func TestEffectNeverHappenedTooEarly(t *testing.T) {
	t.Parallel()
	const window = 1200 * time.Millisecond
	var calls atomic.Int64
	e := effEngine(t, pgtest.Pool(t), engine.Config{Workflows: []steps.Definition{effAsk.Of(
		steps.New("pay", effUnsure(&calls, 2), effQuick).LookUp(func(context.Context, int) (steps.Verdict[string], error) {
			return steps.NeverHappened[string](), nil
		}, window, effQuestions(10_000)))}})
	work(t, e)
	r := effStart(t, e, effAsk, 1)
	effSuccess(t, e, r)
	info := effGet(t, e, r.ID)
	since, again := effRows(info, "uncertain"), effRows(info, "repeat")
	if len(since) != 1 || len(again) != 1 || calls.Load() != 2 {
		t.Fatalf("%d calls; %v", calls.Load(), effEvents(info))
	}
	if d := again[0].GrantedAt.Sub(since[0].EndedAt); d < window {
		t.Errorf("an answer that came after %v settled it; the window is %v", d, window)
	}
	if len(effRows(info, "unknown")) == 0 {
		t.Errorf("the look-up was not asked before the window had passed, or it counted: %v", effEvents(info))
	}
	if again[0].Code != "NEVER_HAPPENED" || again[0].Writer != "reconciler" {
		t.Errorf("the repeat is recorded as %+v", again[0])
	}
}

// An answer that settles nothing is asked for again, by its own time or by
// backoff, until the budget is spent: then a person must say.
func TestEffectQuestionsExhausted(t *testing.T) {
	t.Parallel()
	const apart = 400 * time.Millisecond
	var calls, asked atomic.Int64
	e := effEngine(t, pgtest.Pool(t), engine.Config{Workflows: []steps.Definition{effAsk.Of(
		steps.New("pay", effUnsure(&calls)).LookUp(func(context.Context, int) (steps.Verdict[string], error) {
			if asked.Add(1) == 2 {
				return steps.StillUnknown[string](apart), nil
			}
			return steps.StillUnknown[string](0), nil
		}, time.Millisecond, effQuestions(4)))}})
	work(t, e)
	r := effStart(t, e, effAsk, 1)
	effUntil(t, "a person to be asked", func() bool {
		i := effGet(t, e, r.ID)
		return i.State == engine.Uncertain && i.Code == "QUESTIONS_EXHAUSTED"
	})
	info := effGet(t, e, r.ID)
	if j := info.Jobs[0]; !j.DueAt.IsZero() || !info.DueAt.IsZero() || j.Questions != 4 || asked.Load() != 4 || calls.Load() != 1 {
		t.Errorf("%d calls, %d questions; %+v", calls.Load(), asked.Load(), j)
	}
	unknown, asking := effRows(info, "unknown"), effRows(info, "asking")
	if len(unknown) != 4 || len(asking) != 4 {
		t.Fatal(effEvents(info))
	}
	if d := asking[2].EndedAt.Sub(unknown[1].EndedAt); d < apart {
		t.Errorf("asked again after %v, not %v", d, apart)
	}
	if unknown[3].Code != "QUESTIONS_EXHAUSTED" || !strings.Contains(unknown[3].Reason, "asked 4 times") {
		t.Errorf("the last answer is recorded as %+v", unknown[3])
	}
	if err := e.Resolve(context.Background(), r.ID, effPerson, engine.ItHappened("by phone", "call of Monday")); err != nil {
		t.Fatal(err)
	}
	if out := effSuccess(t, e, r); out != "by phone" || calls.Load() != 1 {
		t.Errorf("%q after %d calls", out, calls.Load())
	}
	info = effGet(t, e, r.ID)
	if h := effRows(info, "resolved"); len(h) != 1 || h[0].Actor != effPerson.Actor || h[0].Reason != effPerson.Reason || h[0].EvidenceText != "call of Monday" || h[0].Writer != "person" {
		t.Errorf("the person's word is recorded as %+v", h)
	}
}

// A StillUnknown that names no time backs off: between zero and a limit that
// doubles from the budget's Delay to its MaxDelay. One that does is asked again then.
func TestEffectQuestionsBackOff(t *testing.T) {
	t.Parallel()
	const first, most, named = 1000 * time.Hour, 3000 * time.Hour, 77 * time.Hour
	var calls atomic.Int64
	pool := pgtest.Pool(t)
	noteDelays(t, pool)
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{effAsk.Of(
		steps.New("pay", effUnsure(&calls)).LookUp(func(_ context.Context, n int) (steps.Verdict[string], error) {
			switch n {
			case 0:
				return steps.StillUnknown[string](named), nil
			case 1:
				return steps.Verdict[string]{}, errors.New("no answer to the question either")
			}
			return steps.StillUnknown[string](0), nil
		}, time.Millisecond, steps.Retry{Attempts: 4, Delay: first, MaxDelay: most}))}})
	work(t, e)
	var runs []engine.Run[string]
	for i := range 25 {
		runs = append(runs, effStart(t, e, effAsk, i))
	}
	byQuestion := make([][]time.Duration, 4)
	for i, r := range runs {
		var ds []time.Duration
		effUntil(t, "all questions to be asked", func() bool {
			hurryAll(t, pool)
			ds = delays(t, pool, r.ID, "unknown")
			return len(ds) == len(byQuestion)
		})
		if ds[3] != forPerson {
			t.Errorf("run %d: after the last question it is due in %v, not for a person", i, ds[3])
		}
		for q, d := range ds[:3] {
			if i > 0 {
				byQuestion[q] = append(byQuestion[q], d)
			} else if d != named {
				t.Errorf("an answer that named %v is asked for again after %v", named, d)
			}
		}
	}
	for q, limit := range []time.Duration{first, 2 * first, most} {
		spreadUpTo(t, fmt.Sprintf("question %d", q+1), byQuestion[q], limit)
	}
}

// An error settles nothing, whatever stands beside it; nor does a panic.
func TestEffectVerdictBesideError(t *testing.T) {
	t.Parallel()
	var calls, asked atomic.Int64
	e := effEngine(t, pgtest.Pool(t), engine.Config{Workflows: []steps.Definition{effAsk.Of(
		steps.New("pay", effUnsure(&calls)).LookUp(func(context.Context, int) (steps.Verdict[string], error) {
			switch asked.Add(1) {
			case 1:
				return steps.Happened("bogus"), errors.New("half an answer")
			case 2:
				return steps.NeverHappened[string](), steps.Permanent("GONE", errors.New("404"))
			case 3:
				panic("the look-up broke")
			}
			return steps.Happened("found"), nil
		}, time.Millisecond, effQuestions(10)))}})
	work(t, e)
	r := effStart(t, e, effAsk, 1)
	if out := effSuccess(t, e, r); out != "found" || calls.Load() != 1 {
		t.Errorf("%q after %d calls", out, calls.Load())
	}
	info := effGet(t, e, r.ID)
	var codes []string
	for _, h := range effRows(info, "unknown") {
		codes = append(codes, h.Code)
	}
	if got := strings.Join(codes, " "); got != "UNKNOWN GONE PANIC" {
		t.Errorf("the answers are recorded as %s", got)
	}
	if len(effRows(info, "settled")) != 1 {
		t.Error(effEvents(info))
	}
}

// A receipt that comes after its lease was lost changes nothing, and is kept:
// the look-up is shown it, and people are.
func TestEffectLateReceipt(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	var saw atomic.Value
	release, began := make(chan struct{}), make(chan struct{}, 10)
	pool := pgtest.Pool(t)
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{effAsk.Of(
		steps.New("pay", func(context.Context, int) (string, error) { // it does not even look at its context
			calls.Add(1)
			began <- struct{}{}
			<-release
			return "late receipt", nil
		}, steps.Lease(600*time.Millisecond)).LookUp(func(ctx context.Context, _ int) (steps.Verdict[string], error) {
			if late, ok := steps.LateResult[string](ctx); ok {
				saw.Store(late)
				return steps.Happened(late + ", seen by the look-up"), nil
			}
			return steps.StillUnknown[string](50 * time.Millisecond), nil
		}, time.Hour, effQuestions(10_000)))}})
	work(t, e)
	r := effStart(t, e, effAsk, 1)
	effSignal(t, "the body to begin", began)
	info := effState(t, e, r.ID, engine.Uncertain)
	effUntil(t, "a first question without a late result", func() bool { return len(effRows(effGet(t, e, r.ID), "unknown")) > 0 })
	if h := effRows(info, "uncertain"); len(h) != 1 || h[0].Writer != "recovery" || h[0].Code != "LEASE_EXPIRED" {
		t.Errorf("the lapse is recorded as %+v", h)
	}
	if len(info.Evidence) != 0 {
		t.Errorf("evidence of nothing: %+v", info.Evidence)
	}
	close(release)
	if out := effSuccess(t, e, r); out != "late receipt, seen by the look-up" {
		t.Errorf("got %q", out)
	}
	info = effGet(t, e, r.ID)
	if len(info.Evidence) != 1 || string(info.Evidence[0].Output) != `"late receipt"` || info.Evidence[0].Step != "pay" || info.Evidence[0].Attempt != 1 {
		t.Errorf("the evidence is %+v", info.Evidence)
	}
	if saw.Load() != "late receipt" || calls.Load() != 1 || len(effRows(info, "completed")) != 0 || len(effRows(info, "settled")) != 1 {
		t.Errorf("the look-up saw %v; %d calls; %v", saw.Load(), calls.Load(), effEvents(info))
	}
}

// What a person gives as the output must be one; else it is uncertain still.
func TestEffectUndecodableWord(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	var calls atomic.Int64
	pool := pgtest.Pool(t)
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{effAsk.Of(steps.New("pay", effUnsure(&calls, 2), steps.Manual()))}})
	stranger := effEngine(t, pool, engine.Config{}) // which can't know the type
	work(t, e)
	r := effStart(t, e, effAsk, 1)
	if info := effState(t, e, r.ID, engine.Uncertain); !info.DueAt.IsZero() {
		t.Errorf("a person is not asked at once: %+v", info)
	}
	if err := stranger.Resolve(ctx, r.ID, effPerson, engine.ItHappened(json.RawMessage(`{"not":"a string"}`), "typed from a letter")); err != nil {
		t.Fatal(err)
	}
	effUntil(t, "the output to be refused", func() bool {
		i := effGet(t, e, r.ID)
		return i.State == engine.Uncertain && i.Code == "DECODE"
	})
	info := effGet(t, e, r.ID)
	if !info.DueAt.IsZero() || calls.Load() != 1 {
		t.Errorf("%d calls; %+v", calls.Load(), info)
	}
	if h := info.History[len(info.History)-1]; h.Event != "uncertain" || !strings.Contains(h.Reason, `the output that was given for step "pay"`) {
		t.Errorf("it is recorded as %+v", h)
	}
	if err := e.Resolve(ctx, r.ID, effPerson, engine.ItHappened(make(chan int), "nonsense")); err == nil {
		t.Error("an output that does not encode was taken")
	}
	if err := e.Resolve(ctx, r.ID, effPerson, engine.ItHappened("right", "typed again")); err != nil {
		t.Fatal(err)
	}
	if out := effSuccess(t, e, r); out != "right" || calls.Load() != 1 {
		t.Errorf("%q after %d calls", out, calls.Load())
	}
}
