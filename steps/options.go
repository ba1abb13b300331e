package steps

import (
	"errors"
	"fmt"
	"time"

	"github.com/pawlworks/pawl/internal/plan"
)

// Option says how to run a step, or all steps of a definition. An option that
// makes no sense, is given twice or contradicts another is reported by the
// Err of the [Definition].
type Option interface {
	set(*settings)
}

type option struct {
	name  string
	apply func(*settings) error
}

func (o option) set(s *settings) {
	if s.once(o.name) {
		s.refuse(o.name, o.apply(s))
	}
}

// duration is an option of a duration that must be one.
func duration(name string, d time.Duration, to func(*settings) *time.Duration) Option {
	return option{name, func(s *settings) error {
		*to(s) = d
		return checkDuration(d)
	}}
}

// Lease is how long an attempt owns its job without progress. A step that
// needs ten silent minutes says so here: while its process lives, nobody takes
// over sooner. (A dead process loses its jobs with its session, whatever their
// leases.) At least 100 ms. Default: 1 minute, or MaxRuntime where that is shorter.
func Lease(d time.Duration) Option {
	return duration("Lease", d, func(s *settings) *time.Duration { return &s.lease })
}

// Heartbeat is how often a lease is renewed, given progress. It must be less
// than the lease. Default: a third of the lease.
func Heartbeat(d time.Duration) Option {
	return duration("Heartbeat", d, func(s *settings) *time.Duration { return &s.heartbeat })
}

// MaxRuntime caps one attempt's life across its renewals. Default: 15 minutes,
// or the lease where that is longer.
func MaxRuntime(d time.Duration) Option {
	return duration("MaxRuntime", d, func(s *settings) *time.Duration { return &s.maxRuntime })
}

// Queue names the queue of the step's jobs. Default: "default".
func Queue(name string) Option {
	return option{"Queue", func(s *settings) error {
		s.queue = name
		return checkLabel(name)
	}}
}

// Owner names who must look when the step is dead or uncertain: a team, a
// channel, a person. The log, engine.RunInfo and engine.FailedError name it.
// Default: nobody.
func Owner(name string) Option {
	return option{"Owner", func(s *settings) error {
		s.owner = name
		return checkLabel(name)
	}}
}

// Formerly gives a name that the step had once: runs that were started then
// carry on. Give it again for a name before that. Not for Define.
func Formerly(name string) Option {
	return formerly(name)
}

type formerly string

func (name formerly) set(s *settings) {
	s.given = append(s.given, "Formerly")
	for _, old := range s.formerly {
		if old == string(name) {
			s.refuse("Formerly", fmt.Errorf("%q is given twice", old))
			return
		}
	}
	s.formerly = append(s.formerly, string(name))
	s.refuse("Formerly", checkName(string(name)))
}

// Forever is for targets that never forget a key, and for budgets of time
// that never end.
const Forever = plan.Forever

// Idempotent declares that the target honours the [IdempotencyKey] and
// remembers it for ttl: within it the effect may be repeated. Not for Define.
func Idempotent(ttl time.Duration) Option {
	return duration("Idempotent", ttl, func(s *settings) *time.Duration { return &s.ttl })
}

// Manual declares that a person decides what became of the effect when an
// attempt ends without a definite outcome. Not for Define.
func Manual() Option {
	return option{"Manual", func(*settings) error { return nil }}
}

// Classifier gives classes to errors that have none. It returns an error made
// by [Permanent], [Transient], [Uncertain], [RetryAfter] or [Snooze], or nil or
// the error itself where it has no opinion; then the defaults of [Classify] decide.
// Default: only those. On a step with LookUp or Manual a mark says that the effect
// has not happened, which no general rule can know: one given to Define does not
// reach those steps.
type Classifier func(error) error

func (c Classifier) set(s *settings) {
	if !s.once("Classifier") {
		return
	}
	if c == nil {
		s.refuse("Classifier", errors.New("the function is nil"))
		return
	}
	s.classify = func(err error) error {
		if classified := c(err); classified != nil {
			return classified
		}
		return err
	}
}
