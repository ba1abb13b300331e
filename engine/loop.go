package engine

import (
	"context"
	"sync/atomic"
	"time"
)

// loop is a goroutine that acts when it is woken or when its time has come.
// Each of a worker's loops is one of these, in a file of its own; it can be
// started alone in a test.
type loop struct {
	// act does what there is to do and returns when to act again unless woken
	// before; it must return soon after ctx has ended.
	act  func(ctx context.Context) time.Duration
	kick chan struct{}
	stop context.CancelFunc
	done chan struct{}
	at   atomic.Int64 // since when it acts, in nanoseconds of the process; 0: it waits
}

func newLoop(act func(ctx context.Context) time.Duration) *loop {
	return &loop{act: act, kick: make(chan struct{}, 1), done: make(chan struct{})}
}

// wake makes the loop act once more, soon. It never blocks.
func (l *loop) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// Start acts after a while, or when woken.
func (l *loop) Start(ctx context.Context, after time.Duration) {
	ctx, l.stop = context.WithCancel(ctx)
	go func() {
		defer close(l.done)
		timer := time.NewTimer(after)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-l.kick:
			case <-timer.C:
			}
			if ctx.Err() != nil {
				return
			}
			l.at.Store(int64(time.Since(processStart)))
			next := l.act(ctx)
			l.at.Store(0)
			timer.Reset(next)
		}
	}()
}

// stuck is for how long the loop has been at one thing.
func (l *loop) stuck() time.Duration {
	if at := l.at.Load(); at != 0 {
		return time.Since(processStart) - time.Duration(at)
	}
	return 0
}

var processStart = time.Now().Add(-1) // nothing begins at 0

// Stop ends the loop and waits for what it is doing.
func (l *loop) Stop() {
	l.stop()
	<-l.done
}

// sleep waits for d or until ctx ends, and tells whether it has not.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
