package dbos

import (
	"context"
	"encoding/json"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/pawlworks/pawl/bench/internal/peers/probe"
)

// start starts a run as an application's request does.
func (r *runtime) start(w *workflows) (dbos.WorkflowHandle[json.RawMessage], error) {
	return dbos.RunWorkflow(r.Context, r.workflow, json.RawMessage(w.opts.Payload), w.way.options(r)...)
}

// queued runs wait in a queue, which a worker polls.
type queued struct{}

// enqueue calls the SQL function that DBOS has for clients without a library,
// a thousand times with a statement: the library itself starts one at a time.
func (queued) enqueue(ctx context.Context, w *workflows, n int) error {
	return probe.Batches(n, 1000, func(n int) error {
		_, err := w.opts.Pool.Exec(ctx, `
			SELECT dbos.enqueue_workflow($1, $2, ARRAY[$3::json], application_name => $4)
			FROM generate_series(1, $5::int)`, workflowName, queueName, string(w.opts.Payload), appName, n)
		return err
	})
}

// startOne enqueues by a client, as DBOS recommends for a process that doesn't
// work. It stays open until Work's stop.
func (queued) startOne(ctx context.Context, w *workflows) error {
	c, err := w.clientOf(ctx)
	if err != nil {
		return err
	}
	_, err = dbos.Enqueue[json.RawMessage](c, queueName, workflowName, json.RawMessage(w.opts.Payload))
	return err
}

func (queued) options(r *runtime) []dbos.WorkflowOption {
	return []dbos.WorkflowOption{dbos.WithQueue(r.queue)}
}

func (queued) starting(context.Context, *runtime) (free func(), err error) { return func() {}, nil }

func (w *workflows) clientOf(ctx context.Context) (dbos.Client, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.client != nil {
		return w.client, nil
	}
	ctx = context.WithoutCancel(ctx)
	pool, err := pgxpool.NewWithConfig(ctx, w.opts.Pool.Config())
	if err != nil {
		return nil, err
	}
	c, err := dbos.NewClient(ctx, dbos.ClientConfig{AppName: appName, SystemDBPool: pool, Logger: probe.Quiet()})
	if err != nil {
		pool.Close()
		return nil, err
	}
	w.client = c
	return c, nil
}

// direct runs begin in the process that starts them. There is no limit to how
// many run at once, so the bench sets one, as an application would.
type direct struct{}

// callers start direct runs at once.
const callers = 16

// enqueue starts runs, and launches DBOS if this process doesn't work yet.
func (direct) enqueue(ctx context.Context, w *workflows, n int) error {
	r, err := w.lockedOpen(ctx)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(callers)
	for range n {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			_, err := r.start(w)
			return err
		})
	}
	return g.Wait()
}

func (direct) startOne(ctx context.Context, w *workflows) error {
	r, err := w.lockedOpen(ctx)
	if err == nil {
		_, err = r.start(w)
	}
	return err
}

func (w *workflows) lockedOpen(ctx context.Context) (*runtime, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open(ctx)
}

func (direct) options(*runtime) []dbos.WorkflowOption { return nil }

func (direct) starting(ctx context.Context, r *runtime) (free func(), err error) {
	select {
	case r.slots <- struct{}{}:
		return func() { <-r.slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
