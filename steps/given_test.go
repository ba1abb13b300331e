package steps_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pawlworks/pawl/steps"
)

// TestGiven: which settings somebody chose is told from those that are defaults.
func TestGiven(t *testing.T) {
	t.Parallel()
	class := steps.Classifier(func(err error) error { return err })
	for _, c := range []struct {
		step     steps.Step[string, string]
		defaults []steps.Option
		want     string
	}{
		{steps.New("a", pass), nil, ""},
		{steps.New("a", pass, steps.Lease(time.Second), steps.MaxRuntime(time.Hour), steps.Owner("me"), steps.Queue("q")), nil, "lease max_runtime queue owner"},
		{steps.New("a", pass, steps.Manual(), steps.Formerly("b"), steps.Formerly("c")), nil, "formerly effect"},
		{steps.New("a", pass, steps.Idempotent(time.Hour)), []steps.Option{class}, "classifier effect"},
		{steps.New("a", pass, steps.Retry{Attempts: 3}, steps.RetryUnknown{Within: steps.Forever, MaxDelay: time.Hour}), []steps.Option{steps.Retry{Delay: time.Minute}},
			"retry.attempts retry.delay retry_unknown.within retry_unknown.max_delay"},
		// A classifier for all does not reach a step whose effect is looked up.
		{steps.New("a", pass).LookUp(find, time.Minute, steps.Retry{Attempts: 3}), []steps.Option{class, steps.Heartbeat(time.Second)}, "heartbeat effect questions.attempts"},
		{steps.New("a", pass, class).LookUp(find, time.Minute), nil, "classifier effect"},
	} {
		def := word.Define(func(f *steps.Flow, in steps.Ref[string]) steps.Ref[string] { return c.step.Do(f, in) }, c.defaults...)
		if got := strings.Join(only(t, def).Given, " "); got != c.want {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
}
