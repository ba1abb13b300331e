package workload

import (
	"context"
	"time"

	"github.com/pawlworks/pawl/bench/internal/meter"
)

var w1 = Workload{
	Name:  "W1",
	Title: "2,000 runs of 10 empty steps, all enqueued, until the last is done",
	Cases: []Case{{N: 2000, Peers: true}},
	Limit: 3 * time.Minute,
	Measure: func(ctx context.Context, e *Env) error {
		return throughput(ctx, e, e.nPeers(e.Case.N))
	},
}

var w10 = Workload{
	Name:  "W10",
	Title: "W1 with larger payloads",
	Cases: []Case{{Name: "1 KiB", Payload: 1 << 10, N: 2000}, {Name: "64 KiB", Payload: 64 << 10, N: 200}},
	Measure: func(ctx context.Context, e *Env) error {
		return throughput(ctx, e, e.n(e.Case.N))
	},
}

// w13 is long, since it is about differences of a few parts in a hundred.
var w13 = Workload{
	Name:  "W13",
	Title: "W1 with 8,000 runs, without OpenTelemetry's SDK and with it",
	Cases: []Case{{Name: "no SDK", N: 8000, NoFloor: true}, {Name: "SDK: traces, 1 % sampled", N: 8000, Traces: true, NoFloor: true},
		{Name: "SDK: metrics, read every second", N: 8000, Metrics: true, NoFloor: true},
		{Name: "SDK: both", N: 8000, Traces: true, Metrics: true, NoFloor: true}},
	Limit: 3 * time.Minute,
	Measure: func(ctx context.Context, e *Env) error {
		return throughput(ctx, e, e.n(e.Case.N))
	},
}

func throughput(ctx context.Context, e *Env, runs int) error {
	s, err := e.open(ctx, e.Slots)
	if err != nil {
		return err
	}
	if err := e.enqueue(ctx, s, runs); err != nil {
		return err
	}
	if err := meter.ResetPeakMemory(); err != nil {
		return err
	}
	before, err := e.readCosts()
	if err != nil {
		return err
	}
	return e.drain(ctx, s, runs, func(took time.Duration) error {
		return e.addCosts(before, took, runs*e.steps())
	})
}
