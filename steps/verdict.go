package steps

import (
	"time"

	"github.com/pawlworks/pawl/internal/plan"
)

// Verdict is the answer of a look-up: what became of an effect. The zero
// Verdict is still unknown. Verdicts of comparable outputs compare with ==.
type Verdict[O any] struct {
	outcome plan.Outcome
	output  O
	again   time.Duration
}

// Happened says that the effect happened and what the step would have
// returned: the run goes on with it.
func Happened[O any](output O) Verdict[O] {
	return Verdict[O]{outcome: plan.Happened, output: output}
}

// NeverHappened says that the target knows nothing of the effect. It counts
// once the late-arrival window has passed; then the step is tried again.
func NeverHappened[O any]() Verdict[O] {
	return Verdict[O]{outcome: plan.NeverHappened}
}

// StillUnknown says to ask again, after so long; zero or less: by backoff.
func StillUnknown[O any](again time.Duration) Verdict[O] {
	return Verdict[O]{again: max(again, 0)}
}

// String returns the outcome in words.
func (v Verdict[O]) String() string {
	switch v.outcome {
	case plan.Happened:
		return "happened"
	case plan.NeverHappened:
		return "never happened"
	}
	return "still unknown"
}

func (v Verdict[O]) plan() plan.Verdict {
	p := plan.Verdict{Outcome: v.outcome, Again: v.again}
	if v.outcome == plan.Happened {
		p.Output = v.output
	}
	return p
}
