package river

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// stepwise makes a job of each step. A transaction completes it and inserts
// the next; the last one's marks the run as done.
type stepwise struct{}

type stepArgs struct {
	Run     string          `json:"run"`
	Step    int             `json:"step"`
	Payload json.RawMessage `json:"payload"`
}

func (stepArgs) Kind() string { return "step" }

func (stepwise) job(run string, payload []byte) river.JobArgs {
	return stepArgs{Run: run, Payload: payload}
}

func (stepwise) register(w *river.Workers, q *queue) { river.AddWorker(w, &stepWorker{queue: q}) }

func (stepwise) schema() string {
	return "CREATE TABLE IF NOT EXISTS bench_done (run text PRIMARY KEY)"
}
func (stepwise) done() string { return "SELECT count(*) FROM bench_done" }

type stepWorker struct {
	river.WorkerDefaults[stepArgs]
	queue *queue
}

func (w *stepWorker) Work(ctx context.Context, job *river.Job[stepArgs]) error {
	a, q := job.Args, w.queue
	q.opts.OnStep(a.Run, a.Step)
	if err := q.probe.Step(a.Run, a.Step, a.Payload); err != nil {
		return err
	}
	last := a.Step == q.opts.Steps-1

	tx, err := q.opts.Pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if last {
		_, err = tx.Exec(ctx, "INSERT INTO bench_done VALUES ($1)", a.Run)
	} else {
		next := stepArgs{Run: a.Run, Step: a.Step + 1, Payload: a.Payload}
		_, err = river.ClientFromContext[pgx.Tx](ctx).InsertTx(ctx, tx, next, nil)
	}
	if err != nil {
		return err
	}
	if _, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	if last {
		q.waits.Done(a.Run)
	}
	return nil
}
