// Package dbos runs the bench's workflow on DBOS Transact: a workflow function
// whose steps are checkpointed, taken from a queue or started directly.
package dbos

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/bench/internal/peers/probe"
	"github.com/pawlworks/pawl/bench/internal/system"
)

const (
	appName      = "pawl-bench"
	workflowName = "run"
	queueName    = "runs"
	patience     = time.Minute // for a shutdown
)

type workflows struct {
	opts  system.Options
	poll  time.Duration // of the queue and of who awaits a result; 0: the defaults
	way   way
	probe *probe.Probe

	mu      sync.Mutex
	running *runtime
	client  dbos.Client // nil until a run is enqueued by it
}

// way is how runs are started.
type way interface {
	enqueue(context.Context, *workflows, int) error
	startOne(context.Context, *workflows) error
	options(*runtime) []dbos.WorkflowOption
	// starting gives a run its slot, where the library has no limit.
	starting(context.Context, *runtime) (free func(), err error)
}

// runtime is a launched DBOS. A shut one can't be launched again.
type runtime struct {
	dbos.Context
	workflow dbos.Workflow[json.RawMessage, json.RawMessage]
	queue    dbos.Queue
	slots    chan struct{}
	works    bool
}

// connect makes a context. DBOS closes the pool that it is given when it shuts
// down, so it gets a copy: as large, and counted in the same way.
func (w *workflows) connect(ctx context.Context) (dbos.Context, error) {
	ctx = context.WithoutCancel(ctx)
	pool, err := pgxpool.NewWithConfig(ctx, w.opts.Pool.Config())
	if err != nil {
		return nil, err
	}
	c, err := dbos.NewContext(ctx, dbos.Config{AppName: appName, SystemDBPool: pool, Logger: probe.Quiet()})
	if err != nil {
		pool.Close()
	}
	return c, err
}

// open launches DBOS, if it isn't. The caller has locked w.mu.
func (w *workflows) open(ctx context.Context) (*runtime, error) {
	if w.running != nil {
		return w.running, nil
	}
	c, err := w.connect(ctx)
	if err != nil {
		return nil, err
	}
	r := &runtime{Context: c, slots: make(chan struct{}, w.opts.Slots)}
	r.workflow = func(ctx dbos.Context, payload json.RawMessage) (json.RawMessage, error) {
		free, err := w.way.starting(ctx, r)
		if err != nil {
			return nil, err
		}
		defer free()
		return w.run(ctx, payload)
	}
	dbos.RegisterWorkflow(c, r.workflow, dbos.WithWorkflowName(workflowName))
	if err := w.launch(r); err != nil {
		return nil, errors.Join(err, dbos.Shutdown(c, patience))
	}
	w.running = r
	return r, nil
}

func (w *workflows) launch(r *runtime) (err error) {
	options := []dbos.QueueOption{dbos.WithWorkerConcurrency(w.opts.Slots)}
	if w.poll > 0 {
		options = append(options, dbos.WithQueueBasePollingInterval(w.poll))
	}
	if r.queue, err = dbos.RegisterQueue(r.Context, queueName, options...); err != nil {
		return err
	}
	return dbos.Launch(r.Context)
}

// run is the workflow.
func (w *workflows) run(ctx dbos.Context, payload json.RawMessage) (json.RawMessage, error) {
	id, err := dbos.GetWorkflowID(ctx)
	if err != nil {
		return nil, err
	}
	for step := range w.opts.Steps {
		payload, err = dbos.RunAsStep(ctx, func(context.Context) (json.RawMessage, error) {
			w.opts.OnStep(id, step)
			return payload, w.probe.Step(id, step, payload)
		}, dbos.WithStepName("step"))
		if err != nil {
			return nil, err
		}
	}
	return payload, nil
}
