package pgproxy

import "sync"

// gate is open or shut; those who come while it is shut wait.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // closed while the gate is open
}

func newGate() *gate {
	g := &gate{opened: make(chan struct{})}
	close(g.opened)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
		g.opened = make(chan struct{})
	default:
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
	default:
		close(g.opened)
	}
}

// wait returns true when the gate is open, false when quit is closed first.
func (g *gate) wait(quit <-chan struct{}) bool {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	select {
	case <-quit:
		return false
	case <-opened:
		return true
	}
}
