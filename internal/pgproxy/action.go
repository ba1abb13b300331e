package pgproxy

import "time"

// Action is what happens to a request.
type Action struct {
	kind  kind
	delay time.Duration
}

type kind int

const (
	pass kind = iota
	cutBefore
	cutAfter
	stall
	delay
	kinds
)

var (
	// Pass lets the request through.
	Pass = Action{kind: pass}

	// CutBefore closes both sides; nothing of the request reaches the server.
	CutBefore = Action{kind: cutBefore}

	// CutAfter lets the server work on the request and waits for its whole
	// answer, which the client never gets: both sides are closed. With COMMIT
	// in the request this is the commit whose outcome its client can't know.
	CutAfter = Action{kind: cutAfter}

	// Stall makes a black hole of the connection: sockets stay open, nothing
	// moves in either direction, until Release or Close. Then what was held
	// arrives, late, as it does when a network heals: even if its client has
	// long given up. A request to cancel it is lost for good, or chance would
	// decide what the late statement does.
	Stall = Action{kind: stall}
)

// Delay holds the request for a while.
func Delay(d time.Duration) Action { return Action{kind: delay, delay: d} }
