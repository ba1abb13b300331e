package csvimport

import (
	"context"
	"time"
)

// pace lets chunks pass no faster than one a tick. A nil tick: as fast as they come.
type pace struct {
	ticker *time.Ticker
	tick   <-chan time.Time
}

func newPace(d time.Duration) pace {
	if d <= 0 {
		return pace{}
	}
	t := time.NewTicker(d)
	return pace{t, t.C}
}

func (p pace) wait(ctx context.Context) error {
	if p.tick == nil {
		return nil
	}
	select {
	case <-p.tick:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p pace) stop() {
	if p.ticker != nil {
		p.ticker.Stop()
	}
}
