package river

import (
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/pawlworks/pawl/bench/internal/peers/probe"
	"github.com/pawlworks/pawl/bench/internal/system"
)

// The intervals that River's own benchmark sets.
const (
	tunedCooldown = 2 * time.Millisecond
	tunedPoll     = 20 * time.Millisecond
)

// Contestants are River's variants.
func Contestants() []system.Contestant {
	const defaults = "MaxWorkers = slots; with a lease: RescueStuckJobsAfter = lease, JobTimeout = 0.8 lease"
	longer := fmt.Sprintf("; else job timeout %s", runTimeout)
	tuned := fmt.Sprintf("FetchCooldown %s, FetchPollInterval %s (as in River's own benchmark), %s", tunedCooldown, tunedPoll, defaults)
	return []system.Contestant{
		contestant("job a step", defaults, false, stepwise{}),
		contestant("job a step, tuned", tuned, true, stepwise{}),
		contestant("resumable", defaults+longer, false, resumable{}),
		contestant("resumable, tuned", tuned+longer, true, resumable{}),
	}
}

func contestant(variant, settings string, tuned bool, w way) system.Contestant {
	return system.Contestant{
		Name:     "river",
		Variant:  variant,
		Version:  probe.Version("github.com/riverqueue/river"),
		Settings: settings,
		New: func(o system.Options) (system.System, error) {
			insert, err := river.NewClient(riverpgxv5.New(o.Pool), &river.Config{Logger: probe.Quiet()})
			if err != nil {
				return nil, err
			}
			return &queue{opts: o, tuned: tuned, way: w, insert: insert, probe: probe.New(o, w.done())}, nil
		},
	}
}

func (q *queue) config(workers *river.Workers) *river.Config {
	c := &river.Config{
		Logger:  probe.Quiet(),
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: q.opts.Slots}},
		Workers: workers,
	}
	if q.tuned {
		c.FetchCooldown, c.FetchPollInterval = tunedCooldown, tunedPoll
	}
	if lease := q.opts.Lease; lease > 0 {
		// River takes no rescue that comes before the timeout.
		c.RescueStuckJobsAfter, c.JobTimeout = lease, lease*4/5
	}
	return c
}
