// Package gue runs the bench's workflow on gue: a job a step, and the next one
// enqueued in the transaction that holds and then deletes the job.
package gue

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/vgarvardt/gue/v5"

	"github.com/pawlworks/pawl/bench/internal/peers/probe"
	"github.com/pawlworks/pawl/bench/internal/system"
)

const jobType = "step"

type stepArgs struct {
	Run     string          `json:"run"`
	Step    int             `json:"step"`
	Payload json.RawMessage `json:"payload"`
}

func (a stepArgs) job() (*gue.Job, error) {
	text, err := json.Marshal(a)
	return &gue.Job{Type: jobType, Args: text}, err
}

type queue struct {
	opts   system.Options
	tuning []gue.WorkerPoolOption
	client *gue.Client
	probe  *probe.Probe

	mu    sync.Mutex
	watch *pgxpool.Pool // nil unless it works: RunOne's own connection
}

// Enqueue inserts the rows of a batch with one statement.
func (q *queue) Enqueue(ctx context.Context, n int) error {
	return probe.Batches(n, 1000, func(n int) (err error) {
		jobs := make([]*gue.Job, n)
		for i := range jobs {
			if jobs[i], err = (stepArgs{Run: probe.RunID(), Payload: q.opts.Payload}).job(); err != nil {
				return err
			}
		}
		return q.client.EnqueueBatch(ctx, jobs)
	})
}

// StartOne starts a run as a request does that doesn't wait for the result.
func (q *queue) StartOne(ctx context.Context) error { return q.start(ctx, probe.RunID()) }

func (q *queue) start(ctx context.Context, run string) error {
	job, err := stepArgs{Run: run, Payload: q.opts.Payload}.job()
	if err != nil {
		return err
	}
	return q.client.Enqueue(ctx, job)
}

func (q *queue) Work(ctx context.Context) (stop func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.watch != nil {
		return nil, errors.New("gue: works already")
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	workers, err := gue.NewWorkerPool(q.client, gue.WorkMap{jobType: q.step}, q.opts.Slots, q.tuning...)
	if err == nil {
		q.watch, err = watcher(ctx, q.opts.URL)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = workers.Run(ctx) // ends without an error when its context is cancelled
	}()
	return sync.OnceFunc(func() {
		cancel()
		<-ended
		q.mu.Lock()
		defer q.mu.Unlock()
		q.watch.Close()
		q.watch = nil
	}), nil
}

// step works in the transaction in which gue has locked the job. gue deletes
// the job and commits after it.
func (q *queue) step(ctx context.Context, j *gue.Job) error {
	var a stepArgs
	if err := json.Unmarshal(j.Args, &a); err != nil {
		return err
	}
	q.opts.OnStep(a.Run, a.Step)
	if err := q.probe.Step(a.Run, a.Step, a.Payload); err != nil {
		return err
	}
	if a.Step == q.opts.Steps-1 {
		_, err := j.Tx().Exec(ctx, "INSERT INTO bench_done VALUES ($1)", a.Run)
		return err
	}
	a.Step++
	next, err := a.job()
	if err != nil {
		return err
	}
	return q.client.EnqueueTx(ctx, next, j.Tx())
}

// RunOne asks for the result every 2 ms: gue tells nobody of a commit.
func (q *queue) RunOne(ctx context.Context) error {
	q.mu.Lock()
	watch := q.watch
	q.mu.Unlock()
	if watch == nil {
		return errors.New("gue: nothing works here")
	}
	run := probe.RunID()
	if err := q.start(ctx, run); err != nil {
		return err
	}
	for done := false; ; {
		if err := watch.QueryRow(ctx, "SELECT EXISTS (SELECT FROM bench_done WHERE run = $1)", run).Scan(&done); err != nil || done {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (q *queue) Wait(ctx context.Context, n int) error       { return q.probe.Wait(ctx, n) }
func (q *queue) Done(ctx context.Context) (n int, err error) { return q.probe.Done(ctx) }
