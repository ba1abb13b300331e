package steps_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pawlworks/pawl/internal/plan"
	"github.com/pawlworks/pawl/steps"
)

func TestDefaults(t *testing.T) {
	t.Parallel()
	s := only(t, word.Of(steps.New("a", pass)))
	if s.Name != "a" || s.Kind != plan.Plain || s.Queue != "default" || s.Owner != "" || s.Formerly != nil ||
		s.Effect != plan.NoEffect || s.Classify != nil || s.Ask != nil || s.In != "string" || s.Out != "string" {
		t.Errorf("%+v", s)
	}
	if s.Lease != time.Minute || s.Heartbeat != 20*time.Second || s.MaxRuntime != 15*time.Minute {
		t.Errorf("lease %v, heartbeat %v, max runtime %v", s.Lease, s.Heartbeat, s.MaxRuntime)
	}
	day := 24 * time.Hour
	if want := (plan.Retry{Attempts: 25, Within: day, Delay: time.Second, MaxDelay: 10 * time.Minute}); s.Transient != want {
		t.Errorf("transient %+v", s.Transient)
	}
	if want := (plan.Retry{Attempts: 5, Within: day, Delay: time.Second, MaxDelay: time.Minute}); s.Unknown != want {
		t.Errorf("unknown %+v", s.Unknown)
	}
	s = only(t, word.Of(steps.New("a", pass).LookUp(find, time.Minute)))
	if want := (plan.Retry{Attempts: 100, Within: day, Delay: time.Second, MaxDelay: 10 * time.Minute}); s.Questions != want {
		t.Errorf("questions %+v", s.Questions)
	}
	if s.Effect != plan.LookUp || s.LateArrival != time.Minute || s.Ask == nil {
		t.Errorf("%+v", s)
	}
}

func TestTimesFollowEachOther(t *testing.T) {
	t.Parallel()
	type D = time.Duration
	for _, c := range []struct {
		opts               []steps.Option
		lease, beat, limit D
	}{
		{[]steps.Option{steps.Lease(30 * time.Second)}, 30 * time.Second, 10 * time.Second, 15 * time.Minute},
		{[]steps.Option{steps.Lease(time.Hour)}, time.Hour, 20 * time.Minute, time.Hour},
		{[]steps.Option{steps.MaxRuntime(3 * time.Second)}, 3 * time.Second, time.Second, 3 * time.Second},
		{[]steps.Option{steps.MaxRuntime(time.Hour)}, time.Minute, 20 * time.Second, time.Hour},
		{[]steps.Option{steps.Heartbeat(time.Second)}, time.Minute, time.Second, 15 * time.Minute},
		{[]steps.Option{steps.Lease(time.Minute), steps.MaxRuntime(time.Minute)}, time.Minute, 20 * time.Second, time.Minute},
	} {
		s := only(t, word.Of(steps.New("a", pass, c.opts...)))
		if s.Lease != c.lease || s.Heartbeat != c.beat || s.MaxRuntime != c.limit {
			t.Errorf("%+v: lease %v, heartbeat %v, max runtime %v", c, s.Lease, s.Heartbeat, s.MaxRuntime)
		}
	}
}

func TestRetryFillsIn(t *testing.T) {
	t.Parallel()
	type R = steps.Retry
	for _, c := range []struct {
		own, all R
		want     plan.Retry
	}{
		{R{Attempts: 8}, R{Within: time.Hour}, plan.Retry{Attempts: 8, Within: time.Hour, Delay: time.Second, MaxDelay: 10 * time.Minute}},
		{R{Attempts: 8}, R{Attempts: 9, Delay: time.Minute}, plan.Retry{Attempts: 8, Within: 24 * time.Hour, Delay: time.Minute, MaxDelay: 10 * time.Minute}},
		{R{Within: steps.Forever}, R{}, plan.Retry{Attempts: 25, Delay: time.Second, MaxDelay: 10 * time.Minute}},
		{R{MaxDelay: 10 * time.Millisecond}, R{}, plan.Retry{Attempts: 25, Within: 24 * time.Hour, Delay: 10 * time.Millisecond, MaxDelay: 10 * time.Millisecond}},
		{R{Delay: time.Hour}, R{}, plan.Retry{Attempts: 25, Within: 24 * time.Hour, Delay: time.Hour, MaxDelay: time.Hour}},
	} {
		if s := only(t, word.Of(steps.New("a", pass, c.own), c.all)); s.Transient != c.want {
			t.Errorf("%+v over %+v: %+v", c.own, c.all, s.Transient)
		}
		if s := only(t, word.Of(steps.New("a", pass).LookUp(find, time.Minute, c.own))); s.Questions.Delay != max(min(time.Second, c.want.MaxDelay), c.own.Delay) {
			t.Errorf("questions %+v: %+v", c.own, s.Questions)
		}
	}
}

func TestOptionsReachTheStep(t *testing.T) {
	t.Parallel()
	odd := errors.New("odd")
	none := func(error) error { return nil }
	all := []steps.Option{
		steps.Queue("slow"), steps.Owner("#payments"), steps.Lease(time.Hour), steps.RetryUnknown{Attempts: 2},
		steps.Classifier(func(error) error { return steps.Transient(odd) }),
	}
	s := only(t, word.Of(steps.New("a", pass), all...))
	if s.Queue != "slow" || s.Owner != "#payments" || s.Lease != time.Hour || s.Unknown.Attempts != 2 {
		t.Errorf("defaults of Define: %+v", s)
	}
	if e := steps.Classify(s.Classify(errors.New("x"))); e.Class != steps.ClassTransient || !e.Marked() || !errors.Is(e, odd) {
		t.Errorf("classified as %+v", e)
	}
	s = only(t, word.Of(steps.New("a", pass, steps.Queue("fast"), steps.Owner("me"), steps.Lease(time.Second),
		steps.RetryUnknown{Attempts: 3}, steps.Classifier(none), steps.Formerly("b"), steps.Formerly("c"),
		steps.Idempotent(steps.Forever)), all...))
	if s.Queue != "fast" || s.Owner != "me" || s.Lease != time.Second || s.Unknown.Attempts != 3 {
		t.Errorf("own options: %+v", s)
	}
	if !slices.Equal(s.Formerly, []string{"b", "c"}) || s.Effect != plan.Idempotent || s.TTL != steps.Forever {
		t.Errorf("own options: %+v", s)
	}
	if err := s.Classify(odd); err != odd {
		t.Errorf("a classifier without an opinion made %v", err)
	}
	if s := only(t, word.Of(steps.New("a", pass, steps.Manual()), all...)); s.Classify != nil {
		t.Error("a classifier of Define reached a Manual step")
	}
	if s := only(t, word.Of(steps.New("a", pass, steps.Manual()))); s.Effect != plan.Manual {
		t.Errorf("%+v", s)
	}
}

// A changed copy leaves the step it was made from as it was.
func TestStepsAreValues(t *testing.T) {
	t.Parallel()
	opts := []steps.Option{steps.Queue("one")}
	plain := steps.New("a", pass, opts...)
	opts[0] = steps.Queue("two")
	questions := []steps.Option{steps.Retry{Attempts: 3}}
	asked := plain.LookUp(find, time.Minute, questions...)
	questions[0] = steps.Retry{Attempts: 4}
	again := plain.LookUp(find, time.Hour)
	never := asked.LookUp(find, time.Hour)
	if s := only(t, word.Of(plain)); s.Effect != plan.NoEffect || s.Ask != nil || s.Queue != "one" {
		t.Errorf("the original became %+v", s)
	}
	if s := only(t, word.Of(asked)); s.LateArrival != time.Minute || s.Questions.Attempts != 3 {
		t.Errorf("the first copy became %+v", s)
	}
	if s := only(t, word.Of(again)); s.LateArrival != time.Hour {
		t.Errorf("the second copy became %+v", s)
	}
	wantText(t, word.Of(never).Err(), "LookUp and LookUp")
	one, two := only(t, word.Of(plain, steps.Owner("x"))), only(t, word.Of(plain))
	if one.Owner != "x" || two.Owner != "" {
		t.Error("definitions share a step's settings")
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	var answer steps.Verdict[string]
	var failure error
	s := only(t, word.Of(steps.New("a", pass).LookUp(func(_ context.Context, in string) (steps.Verdict[string], error) {
		if in != "in" {
			t.Errorf("asked about %q", in)
		}
		return answer, failure
	}, time.Minute)))
	for _, c := range []struct {
		verdict steps.Verdict[string]
		err     error
		want    plan.Verdict
		text    string
	}{
		{steps.Happened("out"), nil, plan.Verdict{Outcome: plan.Happened, Output: "out"}, "happened"},
		{steps.NeverHappened[string](), nil, plan.Verdict{Outcome: plan.NeverHappened}, "never happened"},
		{steps.StillUnknown[string](time.Minute), nil, plan.Verdict{Again: time.Minute}, "still unknown"},
		{steps.StillUnknown[string](-1), nil, plan.Verdict{}, "still unknown"},
		{steps.Verdict[string]{}, nil, plan.Verdict{}, "still unknown"},
		{steps.Happened("out"), lost, plan.Verdict{}, "happened"},
		{steps.NeverHappened[string](), lost, plan.Verdict{}, "never happened"},
	} {
		answer, failure = c.verdict, c.err
		if got, err := s.Ask(ctx, "in"); got != c.want || err != c.err || c.verdict.String() != c.text {
			t.Errorf("%v, %v: got %+v, %v", c.verdict, c.err, got, err)
		}
	}
	if _, err := s.Ask(ctx, 1); err == nil {
		t.Error("an int went for a string")
	}
}
