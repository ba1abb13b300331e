package steps

import (
	"errors"
	"fmt"
	"time"

	"github.com/pawlworks/pawl/internal/plan"
)

// Retry is the budget and backoff of transient errors. Each delay is random
// between zero and a limit that begins at Delay and doubles up to MaxDelay.
// A step is dead when either budget is spent.
type Retry struct {
	Attempts int           // failures until the step is dead. Default: 25
	Within   time.Duration // since the first failure; Forever: no limit. Default: 24 hours
	Delay    time.Duration // limit of the first delay. Default: 1 second, or MaxDelay where that is shorter
	MaxDelay time.Duration // limit of all delays. Default: 10 minutes, or Delay where that is longer
}

// RetryUnknown is the budget and backoff of errors that nothing classifies,
// panics among them. Defaults: 5 attempts within 24 hours, the first delay at
// most 1 second, later ones at most 1 minute.
type RetryUnknown Retry

func (r Retry) set(s *settings) {
	if s.once("Retry") {
		s.retry = r
		s.refuse("Retry", r.check())
	}
}

func (r RetryUnknown) set(s *settings) {
	if s.once("RetryUnknown") {
		s.unknown = Retry(r)
		s.refuse("RetryUnknown", Retry(r).check())
	}
}

func (r Retry) check() error {
	if r.Attempts < 0 {
		return fmt.Errorf("negative Attempts: %d", r.Attempts)
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"Within", r.Within}, {"Delay", r.Delay}, {"MaxDelay", r.MaxDelay}} {
		if f.d == 0 {
			continue
		}
		if err := checkDuration(f.d); err != nil {
			return fmt.Errorf("%s %w", f.name, err)
		}
	}
	return nil
}

var errMaxDelay = errors.New("a MaxDelay that is less than Delay")

// over fills r's zero fields from other, then from last.
func (r Retry) over(other Retry, last plan.Retry) (plan.Retry, error) {
	p := plan.Retry{
		Attempts: first(r.Attempts, other.Attempts, last.Attempts),
		Within:   first(r.Within, other.Within, last.Within),
		Delay:    first(r.Delay, other.Delay),
		MaxDelay: first(r.MaxDelay, other.MaxDelay),
	}
	if p.Within == Forever {
		p.Within = 0 // no limit
	}
	switch {
	case p.Delay == 0 && p.MaxDelay == 0:
		p.Delay, p.MaxDelay = last.Delay, last.MaxDelay
	case p.Delay == 0:
		p.Delay = min(last.Delay, p.MaxDelay)
	case p.MaxDelay == 0:
		p.MaxDelay = max(last.MaxDelay, p.Delay)
	case p.MaxDelay < p.Delay:
		return p, errMaxDelay
	}
	return p, nil
}

// chosen names what is set, here or in other.
func (r Retry) chosen(name string, other Retry) (names []string) {
	for _, f := range []struct {
		name string
		set  bool
	}{{"attempts", r.Attempts != 0 || other.Attempts != 0}, {"within", r.Within != 0 || other.Within != 0},
		{"delay", r.Delay != 0 || other.Delay != 0}, {"max_delay", r.MaxDelay != 0 || other.MaxDelay != 0}} {
		if f.set {
			names = append(names, name+"."+f.name)
		}
	}
	return names
}

// first returns the first value that is not zero.
func first[T comparable](values ...T) (zero T) {
	for _, v := range values {
		if v != zero {
			return v
		}
	}
	return zero
}
