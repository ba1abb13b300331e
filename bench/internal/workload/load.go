package workload

import (
	"context"
	"errors"
	"time"

	"github.com/pawlworks/pawl/bench/internal/system"
)

// load keeps a contestant busy for as long as it is needed, as W1 does: there
// are always some runs more than slots, and not many.
type load struct {
	e      *Env
	s      system.System
	before int64 // bodies that had begun before
	stop   func()
	cancel context.CancelFunc
	ended  chan error
}

// startLoad begins to work, and to start runs as others end.
func (e *Env) startLoad(ctx context.Context, s system.System) (*load, error) {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{e: e, s: s, before: e.begun.Load(), cancel: cancel, ended: make(chan error, 1)}
	backlog := max(20, min(2000, e.n(2000)))
	if err := s.Enqueue(ctx, backlog); err != nil {
		cancel()
		return nil, err
	}
	stop, err := s.Work(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	l.stop = stop
	go func() { l.ended <- l.feed(ctx, backlog, backlog) }()
	return l, nil
}

// feed starts runs when a quarter of those that wait have ended, by the
// number of steps that have begun.
func (l *load) feed(ctx context.Context, enqueued, backlog int) error {
	for sleep(ctx, 5*time.Millisecond) == nil {
		ended := int(l.e.begun.Load()-l.before) / l.e.steps()
		if n := ended + backlog - enqueued; n >= max(1, backlog/4) {
			if err := l.s.Enqueue(ctx, n); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			enqueued += n
		}
	}
	return nil
}

// rate is the steps a second over a while.
func (l *load) rate(ctx context.Context, d time.Duration) (float64, error) {
	return l.e.rate(ctx, d)
}

// end stops the load.
func (l *load) end() error {
	l.cancel()
	err := <-l.ended
	l.stop()
	return err
}

var errDry = errors.New("no step ran in the time window: the queue ran dry or the work stands")

// rate counts bodies that begin: they follow the commit of the step before.
func (e *Env) rate(ctx context.Context, d time.Duration) (float64, error) {
	began, before := time.Now(), e.begun.Load()
	if err := sleep(ctx, d); err != nil {
		return 0, err
	}
	n := e.begun.Load() - before
	for patience := time.Now().Add(10 * time.Second); n == 0; n = e.begun.Load() - before {
		if time.Now().After(patience) {
			return 0, errDry
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(began).Seconds(), nil
}
