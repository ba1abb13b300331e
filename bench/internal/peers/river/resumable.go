package river

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// resumable makes one job of a run. Each step's end is durable before the
// next begins (River's plain step is noted only when the job ends): the step
// and its output, as the step's cursor, are written in a transaction.
type resumable struct{}

type runArgs struct {
	Run     string          `json:"run"`
	Payload json.RawMessage `json:"payload"`
}

func (runArgs) Kind() string { return "run" }

func (resumable) job(run string, payload []byte) river.JobArgs {
	return runArgs{Run: run, Payload: payload}
}

func (resumable) register(w *river.Workers, q *queue) { river.AddWorker(w, &runWorker{queue: q}) }

func (resumable) schema() string { return "" }
func (resumable) done() string {
	return "SELECT count(*) FROM river_job WHERE state = 'completed'"
}

type runWorker struct {
	river.WorkerDefaults[runArgs]
	queue *queue
}

const runTimeout = 10 * time.Minute

// Timeout: a run of 10,000 steps may take longer than the default minute. No
// timeout at all would keep River from ever rescuing the job.
func (w *runWorker) Timeout(*river.Job[runArgs]) time.Duration {
	if w.queue.opts.Lease > 0 {
		return 0 // the client's
	}
	return runTimeout
}

func (w *runWorker) Work(ctx context.Context, job *river.Job[runArgs]) error {
	payload := job.Args.Payload
	ended := false
	for step := range w.queue.opts.Steps {
		river.ResumableStepCursor(ctx, "step "+strconv.Itoa(step), nil, func(ctx context.Context, before json.RawMessage) (err error) {
			if before != nil { // it ended before the job was interrupted
				payload = before
				return nil
			}
			payload, err = w.step(ctx, job, step, payload)
			ended = err == nil && step == w.queue.opts.Steps-1
			return err
		})
	}
	if ended {
		w.queue.waits.Done(job.Args.Run)
	}
	return nil // a step's error is with River
}

func (w *runWorker) step(ctx context.Context, job *river.Job[runArgs], step int, payload json.RawMessage) (json.RawMessage, error) {
	q := w.queue
	q.opts.OnStep(job.Args.Run, step)
	if err := q.probe.Step(job.Args.Run, step, payload); err != nil {
		return nil, err
	}
	tx, err := q.opts.Pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(ctx)
	if _, err := river.ResumableSetStepCursorTx[*riverpgxv5.Driver](ctx, tx, job, payload); err != nil {
		return nil, err
	}
	return payload, tx.Commit(ctx)
}
