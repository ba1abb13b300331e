// Package system is what the bench asks of each contestant: a workflow of
// empty steps, enqueued, worked on and waited for, each as the contestant's
// documentation recommends.
package system

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Options are the same for every contestant.
type Options struct {
	URL     string        // of a database of its own, empty before the first Setup
	Pool    *pgxpool.Pool // of that database; what goes through it is counted. Use it wherever the library takes a pool
	Slots   int           // steps that one process runs at once
	Steps   int           // of a run
	Payload []byte        // JSON: the input of a run, and the output of each step, which the next one gets
	// OnStep is called first thing in each step's body, with a number or id
	// that tells runs apart, and the step's place from 0 on. Never nil.
	OnStep func(run string, step int)
	// Lease is after how long at most a killed process's work may be taken
	// back: session and lease, for contestants that have such. 0: their default.
	Lease time.Duration
	// Traces and Metrics: OpenTelemetry's SDK takes what the contestant tells,
	// traces sampled at 1 %, metrics read once a second.
	Traces, Metrics bool
}

// System is one contestant in one configuration.
type System interface {
	// Setup makes the schema, and what else must be there before the first run.
	// Each process calls it once, before Work too: later ones find the schema there.
	Setup(ctx context.Context) error
	// Enqueue starts n runs by the fastest way that is documented, 1,000 at a
	// time at most in one call of the library; they are durable when it returns.
	Enqueue(ctx context.Context, n int) error
	// Work begins to run steps in this process, until stop is called, which
	// returns when nothing runs any more.
	Work(ctx context.Context) (stop func(), err error)
	// Wait returns when n runs in all have succeeded since Setup. Polling every
	// 20 ms by a cheap statement is good enough.
	Wait(ctx context.Context, n int) error
	// RunOne starts one run in the way that an application's request would, and
	// returns when its result is known. This process works at the time.
	RunOne(ctx context.Context) error
	// Done is how many runs have succeeded since Setup.
	Done(ctx context.Context) (int, error)
}

// Contestant makes a System.
type Contestant struct {
	Name     string // pawl, floor, river, dbos, gue
	Variant  string // "" if there is one only
	Version  string // of the library
	Settings string // what was set beside defaults, for the report
	// Direct: Enqueue itself begins to run steps, so time counts from there.
	Direct bool
	Conns  int // of the pool it is given; 0: the bench's default
	New    func(Options) (System, error)
}

// Starter is a System that can start runs one at a time, as requests would.
type Starter interface {
	StartOne(ctx context.Context) error
}
