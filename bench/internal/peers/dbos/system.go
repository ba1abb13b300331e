package dbos

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// Setup migrates, which DBOS does when a context is made.
func (w *workflows) Setup(ctx context.Context) error {
	c, err := w.connect(ctx)
	if err != nil {
		return err
	}
	return dbos.Shutdown(c, patience)
}

func (w *workflows) Enqueue(ctx context.Context, n int) error { return w.way.enqueue(ctx, w, n) }

// StartOne starts a run as a request does that doesn't wait for the result.
func (w *workflows) StartOne(ctx context.Context) error { return w.way.startOne(ctx, w) }

func (w *workflows) Work(ctx context.Context) (stop func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, err := w.open(ctx)
	if err != nil {
		return nil, err
	}
	if r.works {
		return nil, errors.New("dbos: works already")
	}
	r.works = true
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		// Runs that are under way end at their next step, and are recovered
		// when this executor launches again.
		_ = dbos.Shutdown(r.Context, patience)
		if w.client != nil {
			_ = dbos.Shutdown(w.client, patience)
		}
		w.running, w.client = nil, nil
	}), nil
}

func (w *workflows) RunOne(ctx context.Context) error {
	w.mu.Lock()
	r := w.running
	w.mu.Unlock()
	if r == nil || !r.works {
		return errors.New("dbos: nothing works here")
	}
	handle, err := r.start(w)
	if err != nil {
		return err
	}
	output, err := handle.GetResult(dbos.WithHandlePollingInterval(w.poll))
	if err != nil {
		return err
	}
	if err := w.probe.Step(handle.GetWorkflowID(), w.opts.Steps, output); err != nil {
		return fmt.Errorf("the result: %w", err)
	}
	return nil
}

func (w *workflows) Wait(ctx context.Context, n int) error       { return w.probe.Wait(ctx, n) }
func (w *workflows) Done(ctx context.Context) (n int, err error) { return w.probe.Done(ctx) }
