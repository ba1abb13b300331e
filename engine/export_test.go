package engine

import (
	"context"
	"time"
)

// Retire is one turn of the loop retention, as a worker of this engine does it.
func (e *Engine) Retire(ctx context.Context) time.Duration {
	hard, stop := context.WithCancel(ctx)
	w := newWorker(e, hard)
	defer func() { stop(); w.commits.wg.Wait(); w.begins.wg.Wait(); w.reads.wg.Wait() }()
	return w.retire(ctx)
}
