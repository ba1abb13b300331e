package dbos

import (
	"fmt"
	"time"

	"github.com/pawlworks/pawl/bench/internal/peers/probe"
	"github.com/pawlworks/pawl/bench/internal/system"
)

const tunedPoll = 10 * time.Millisecond

// Contestants are DBOS's variants.
func Contestants() []system.Contestant {
	const defaults = "worker concurrency = slots, executor id \"local\""
	return []system.Contestant{
		contestant("queue", defaults, 0, queued{}),
		contestant("queue, tuned", fmt.Sprintf("%s, polling interval of queue and result %s", defaults, tunedPoll), tunedPoll, queued{}),
		starting(contestant("direct", "slots limited by the bench, executor id \"local\"", 0, direct{})),
	}
}

// conns is the size of the pool that DBOS makes if it is given none.
const conns = 20

// starting marks a contestant whose runs begin where they are enqueued.
func starting(c system.Contestant) system.Contestant {
	c.Direct = true
	return c
}

func contestant(variant, settings string, poll time.Duration, w way) system.Contestant {
	return system.Contestant{
		Name:     "dbos",
		Variant:  variant,
		Version:  probe.Version("github.com/dbos-inc/dbos-transact-golang"),
		Settings: settings,
		Conns:    conns,
		New: func(o system.Options) (system.System, error) {
			return &workflows{opts: o, poll: poll, way: w,
				probe: probe.New(o, "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'")}, nil
		},
	}
}
