package engine

import (
	"context"
	"sync"
	"time"
)

// What a wake-up says. All of them may be lost.
const (
	wakeWork   = "w" // something is due
	wakeEnded  = "d" // a run has ended
	wakeCancel = "c" // a run is to be cancelled
)

// notifyEvery bounds how often a process says the same: NOTIFY takes a lock
// over the whole server at commit.
const notifyEvery = 10 * time.Millisecond

// notifier sends wake-ups after commits: the first at once, then at most one
// of a kind every notifyEvery. It holds a goroutine only while it has some to send.
//
// Invariants: nothing waits for it; what it was told is sent at least once
// after it was told, or the process or the database has gone.
type notifier struct {
	e       *Engine
	mu      sync.Mutex
	pending map[string]bool
	busy    bool
}

func (n *notifier) wake(kind string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pending == nil {
		n.pending = map[string]bool{}
	}
	n.pending[kind] = true
	if !n.busy {
		n.busy = true
		go n.send()
	}
}

func (n *notifier) send() {
	for {
		n.mu.Lock()
		kinds := n.pending
		n.pending = nil
		if len(kinds) == 0 {
			n.busy = false
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		began := time.Now()
		for kind := range kinds {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			if err := n.e.db.Notify(ctx, kind); err != nil {
				n.e.log.Debug("pawl: a wake-up was not sent; polling finds the work", "error", err)
			}
			cancel()
		}
		time.Sleep(notifyEvery - time.Since(began)) // the bound itself; nothing is waited for
	}
}
