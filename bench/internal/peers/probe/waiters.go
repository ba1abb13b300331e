package probe

import (
	"context"
	"sync"
)

// Waiters let a request wait for the run that it started, as an application
// does whose requests and workers live in one process.
type Waiters struct{ of sync.Map } // run → chan struct{}

// Expect is called before the run is started.
func (w *Waiters) Expect(run string) (wait func(context.Context) error) {
	done := make(chan struct{})
	w.of.Store(run, done)
	return func(ctx context.Context) error {
		defer w.of.Delete(run)
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Done is called when the commit of the run's last step has returned.
func (w *Waiters) Done(run string) {
	if done, ok := w.of.LoadAndDelete(run); ok {
		close(done.(chan struct{}))
	}
}
