package engine

import (
	"fmt"
	"sync"
	"time"
)

// clock remembers what the database's clock said last. It is the engine's, not
// a session's: one that is lost while the clock goes back must not take what
// was there to compare with along.
type clock struct {
	mu     sync.Mutex
	sent   moment // before the request that was answered with now
	now    time.Time
	until  time.Time // where it stood before it went back; zero: it has caught up
	behind *ailment
}

// clockBack is what one may go back without being remarked upon.
const clockBack = time.Minute

// tells notices that the clock has gone back since, by how much, and that it
// has caught up.
func (c *clock) tells(sent moment, now time.Time) (back time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.until.IsZero() && !now.Before(c.until) {
		c.until, c.behind = time.Time{}, nil
	}
	if !c.now.IsZero() {
		back = c.sent.elapsed() - sent.elapsed() - now.Sub(c.now)
	}
	c.sent, c.now = sent, now
	if back <= clockBack {
		return 0
	}
	c.until = now.Add(back)
	if c.behind == nil {
		c.behind = &ailment{time.Now(), fmt.Errorf("the database's clock went back by %v: what was due before, and leases, wait until it has caught up", back.Round(time.Second))}
	}
	return back
}

// ails is what is wrong with the clock, or nil.
func (c *clock) ails() *ailment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.behind
}

// readClock reports that the database's clock went back: what was due, and the
// leases of the dead, wait until it has caught up.
func (w *worker) readClock(sent moment, now time.Time) {
	if back := w.e.clock.tells(sent, now); back > 0 {
		w.log.Error("pawl: the database's clock went back: what was due before, and the leases of processes that have died, wait until it has caught up",
			"back", back.Round(time.Second).String(), "now", now)
	}
}
