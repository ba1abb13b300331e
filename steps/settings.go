package steps

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/pawlworks/pawl/internal/plan"
)

// settings is what a list of options says. A zero field was not given.
type settings struct {
	given    []string // names of the options, Formerly more than once
	problems []error

	lease, heartbeat, maxRuntime time.Duration
	ttl                          time.Duration
	retry, unknown               Retry
	queue, owner                 string
	formerly                     []string
	classify                     func(error) error
}

const (
	leastLease   = 100 * time.Millisecond
	defaultQueue = "default"
)

func gather(opts []Option) *settings {
	s := &settings{}
	for _, o := range opts {
		if v := reflect.ValueOf(o); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			s.problems = append(s.problems, errors.New("an option is nil"))
			continue
		}
		o.set(s)
	}
	return s
}

// once notes that an option is given and tells whether it is the first time.
func (s *settings) once(name string) bool {
	if slices.Contains(s.given, name) {
		s.refuse(name, errors.New("given twice"))
		return false
	}
	s.given = append(s.given, name)
	return true
}

func (s *settings) refuse(option string, err error) {
	if err != nil {
		s.problems = append(s.problems, fmt.Errorf("%s: %w", option, err))
	}
}

// onlyDefaults refuses what can't hold for all steps of a definition.
func (s *settings) onlyDefaults() (problems []error) {
	for _, name := range []string{"Idempotent", "Manual", "Formerly"} {
		if slices.Contains(s.given, name) {
			problems = append(problems, fmt.Errorf("%s is for a step, not for all", name))
		}
	}
	return problems
}

func (s *settings) effects() (names []string) {
	for _, name := range []string{"Idempotent", "Manual"} {
		if slices.Contains(s.given, name) {
			names = append(names, name)
		}
	}
	return names
}

// chosen names the settings that are given here or for all steps, as they are
// stored beside the graph.
func (s *settings) chosen(d *settings) (names []string) {
	for _, o := range [][2]string{{"Lease", "lease"}, {"Heartbeat", "heartbeat"}, {"MaxRuntime", "max_runtime"}, {"Queue", "queue"}, {"Owner", "owner"},
		{"Formerly", "formerly"}, {"Classifier", "classifier"}, {"Idempotent", "effect"}, {"Manual", "effect"}} {
		if slices.Contains(s.given, o[0]) || slices.Contains(d.given, o[0]) {
			names = append(names, o[1])
		}
	}
	names = append(names, s.retry.chosen("retry", d.retry)...)
	return append(names, s.unknown.chosen("retry_unknown", d.unknown)...)
}

// fill writes the effective settings into step.
func (s *settings) fill(step *plan.Step, d *settings) (problems []error) {
	var err error
	if step.Transient, err = s.retry.over(d.retry, plan.DefaultTransient); err != nil {
		problems = append(problems, fmt.Errorf("Retry: %w", err))
	}
	if step.Unknown, err = s.unknown.over(d.unknown, plan.DefaultUnknown); err != nil {
		problems = append(problems, fmt.Errorf("RetryUnknown: %w", err))
	}
	step.Queue = first(s.queue, d.queue, defaultQueue)
	step.Owner = first(s.owner, d.owner)
	step.Formerly = s.formerly
	step.Given = s.chosen(d)
	if step.Classify = s.classify; step.Classify == nil {
		step.Classify = d.classify
	}
	switch {
	case slices.Contains(s.given, "Idempotent"):
		step.Effect, step.TTL = plan.Idempotent, s.ttl
	case slices.Contains(s.given, "Manual"):
		step.Effect = plan.Manual
	}

	lease, limit := first(s.lease, d.lease), first(s.maxRuntime, d.maxRuntime)
	switch {
	case lease == 0 && limit == 0:
		lease, limit = plan.DefaultLease, plan.DefaultMaxRuntime
	case lease == 0:
		lease = min(plan.DefaultLease, limit)
	case limit == 0:
		limit = max(plan.DefaultMaxRuntime, lease)
	case lease > limit:
		problems = append(problems, fmt.Errorf("Lease: %v is more than MaxRuntime, %v", lease, limit))
	}
	for name, d := range map[string]time.Duration{"Lease": lease, "MaxRuntime": limit} {
		if d < leastLease {
			problems = append(problems, fmt.Errorf("%s: %v is less than %v, in which nothing can be relied on", name, d, leastLease))
		}
	}
	beat := first(s.heartbeat, d.heartbeat, lease/3)
	if beat >= lease && lease > 0 {
		problems = append(problems, fmt.Errorf("Heartbeat: %v is not less than Lease, %v", beat, lease))
	}
	step.Lease, step.MaxRuntime, step.Heartbeat = lease, limit, beat
	return problems
}
