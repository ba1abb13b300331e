// Package river runs the bench's workflow on River, in two ways that its
// documentation shows: a job a step, and one job of resumable steps.
package river

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/pawlworks/pawl/bench/internal/peers/probe"
	"github.com/pawlworks/pawl/bench/internal/system"
)

// queue is one contestant. The way differs in the jobs.
type queue struct {
	opts   system.Options
	tuned  bool
	way    way
	probe  *probe.Probe
	waits  probe.Waiters
	insert *river.Client[pgx.Tx] // works nothing

	mu     sync.Mutex
	worker *river.Client[pgx.Tx] // nil unless it works
}

type way interface {
	job(run string, payload []byte) river.JobArgs
	register(*river.Workers, *queue)
	schema() string // besides River's own
	done() string   // counts the runs that succeeded
}

func (q *queue) Setup(ctx context.Context) error {
	m, err := rivermigrate.New(riverpgxv5.New(q.opts.Pool), &rivermigrate.Config{Logger: probe.Quiet()})
	if err != nil {
		return err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	_, err = q.opts.Pool.Exec(ctx, q.way.schema())
	return err
}

// Enqueue inserts by COPY.
func (q *queue) Enqueue(ctx context.Context, n int) error {
	return probe.Batches(n, 1000, func(n int) error {
		jobs := make([]river.InsertManyParams, n)
		for i := range jobs {
			jobs[i].Args = q.way.job(probe.RunID(), q.opts.Payload)
		}
		_, err := q.insert.InsertManyFast(ctx, jobs)
		return err
	})
}

// StartOne starts a run as a request does that doesn't wait for the result.
func (q *queue) StartOne(ctx context.Context) error {
	_, err := q.insert.Insert(ctx, q.way.job(probe.RunID(), q.opts.Payload), nil)
	return err
}

func (q *queue) Work(ctx context.Context) (stop func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.worker != nil {
		return nil, errors.New("river: works already")
	}
	ctx = context.WithoutCancel(ctx)
	workers := river.NewWorkers()
	q.way.register(workers, q)
	client, err := river.NewClient(riverpgxv5.New(q.opts.Pool), q.config(workers))
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	q.worker = client
	return sync.OnceFunc(func() {
		_ = client.Stop(ctx) // waits for the jobs that run; without a deadline it can't fail
		q.mu.Lock()
		defer q.mu.Unlock()
		q.worker = nil
	}), nil
}

// RunOne knows the result when the last step's transaction is committed, by
// this process. River's own event of a completed job comes later.
func (q *queue) RunOne(ctx context.Context) error {
	q.mu.Lock()
	client := q.worker
	q.mu.Unlock()
	if client == nil {
		return errors.New("river: nothing works here")
	}
	run := probe.RunID()
	wait := q.waits.Expect(run)
	if _, err := client.Insert(ctx, q.way.job(run, q.opts.Payload), nil); err != nil {
		return err
	}
	return wait(ctx)
}

func (q *queue) Wait(ctx context.Context, n int) error       { return q.probe.Wait(ctx, n) }
func (q *queue) Done(ctx context.Context) (n int, err error) { return q.probe.Done(ctx) }
