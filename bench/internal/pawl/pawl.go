// Package pawl is Pawl as a contestant: through its public interface alone.
package pawl

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/pawlworks/pawl/bench/internal/system"
	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/steps"
)

// Workflow is the name of the contestant's workflow in the tables.
const Workflow = "bench"

// Contestant is Pawl with defaults but for its slots.
var Contestant = system.Contestant{
	Name: "pawl", Version: "this tree",
	Settings: "StartMany, Work, defaults but for Slots (and, in W6, Session and Lease)",
	New:      New,
}

type payload struct {
	Run  string `json:"run"` // eight digits
	Data string `json:"data"`
}

type bench struct {
	o        system.Options
	contract steps.Workflow[payload, payload]
	def      steps.Definition
	eng      *engine.Engine
	data     string
	started  atomic.Int64
	executed atomic.Int64 // bodies, in this process
}

// New makes the contestant: a sequence of o.Steps steps, each of which returns what it gets.
func New(o system.Options) (system.System, error) {
	b := &bench{o: o, contract: steps.Declare[payload, payload](Workflow)}
	var p payload
	if err := json.Unmarshal(o.Payload, &p); err != nil {
		return nil, fmt.Errorf("the payload: %w", err)
	}
	// The run's number is part of the payload's size.
	b.data = p.Data[:max(0, len(p.Data)-len(`"run":"00000000",`))]
	var opts []steps.Option
	if o.Lease > 0 {
		opts = append(opts, steps.Lease(o.Lease))
	}
	b.def = b.contract.Define(func(f *steps.Flow, in steps.Ref[payload]) steps.Ref[payload] {
		for i := range o.Steps {
			in = steps.New("step-"+strconv.Itoa(i), func(_ context.Context, p payload) (payload, error) {
				b.executed.Add(1)
				o.OnStep(p.Run, i)
				return p, nil
			}, opts...).Do(f, in)
		}
		return in
	})
	return b, b.def.Err()
}

func (b *bench) Setup(ctx context.Context) (err error) {
	if err := engine.Migrate(ctx, b.o.Pool); err != nil {
		return err
	}
	traces, metrics, err := b.telemetry()
	if err != nil {
		return err
	}
	b.eng, err = engine.New(ctx, b.o.Pool, engine.Config{
		TracerProvider: traces, MeterProvider: metrics,
		Workflows: []steps.Definition{b.def}, Slots: b.o.Slots, Session: b.o.Lease,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	return err
}

func (b *bench) input() payload { return payload{fmt.Sprintf("%08d", b.started.Add(1)), b.data} }

func (b *bench) Enqueue(ctx context.Context, n int) error {
	for n > 0 {
		ins := make([]payload, min(n, 1000))
		for i := range ins {
			ins[i] = b.input()
		}
		if _, err := engine.StartMany(ctx, b.eng, b.contract, ins); err != nil {
			return err
		}
		n -= len(ins)
	}
	return nil
}

func (b *bench) StartOne(ctx context.Context) error {
	_, err := engine.Start(ctx, b.eng, b.contract, b.input())
	return err
}

func (b *bench) RunOne(ctx context.Context) error {
	run, err := engine.Start(ctx, b.eng, b.contract, b.input())
	if err != nil {
		return err
	}
	out, err := run.Wait(ctx)
	if err == nil && out.Data != b.data {
		err = fmt.Errorf("run %s returned something else than it was given", run.ID)
	}
	return err
}

func (b *bench) Work(context.Context) (func(), error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.eng.Work(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			fmt.Fprintln(os.Stderr, "Work:", err)
		}
	}, nil
}

func (b *bench) Done(ctx context.Context) (n int, err error) {
	err = b.o.Pool.QueryRow(ctx, "SELECT count(*) FROM pawl.run WHERE workflow = $1 AND outcome = 'succeeded'", Workflow).Scan(&n)
	return n, err
}

func (b *bench) Wait(ctx context.Context, n int) error {
	return system.Poll(ctx, b, n, func() (ran, all int64) { return b.executed.Load(), int64(n * b.o.Steps) })
}

// Check asks Pawl's doctor, and counts what was recorded.
func (b *bench) Check(ctx context.Context, runs int) error {
	violations, err := b.eng.Doctor(ctx)
	if err != nil {
		return err
	}
	if len(violations) > 0 {
		return fmt.Errorf("the doctor found %d violations, such as: %v", len(violations), violations[0])
	}
	return system.CheckHistory(ctx, b.o.Pool, Workflow, runs*b.o.Steps)
}

// Repeated is how many transitions were recorded twice.
func (b *bench) Repeated(ctx context.Context) (int, error) {
	return system.RepeatedTransitions(ctx, b.o.Pool, Workflow)
}

// Table is the workflow's name in Pawl's tables.
func (b *bench) Table() string { return Workflow }

// Ballast is a run's input, as SQL that makes it from a number i.
func (b *bench) Ballast() string {
	return fmt.Sprintf(`'{"run":"' || lpad(i::text, 8, '0') || '","data":"%s"}'`, strings.ReplaceAll(b.data, "'", "''"))
}
