// Package demo runs the order example from beginning to end: it starts the
// provider, starts all orders, works on them, waits, and compares the books.
//
// Whatever kills the process that runs it: run it again on the same database
// and ledger, and it goes on where it was. Orders are the keys of their runs, so
// starting them again starts nothing twice.
package demo

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Options say what to run, and on what.
type Options struct {
	// Pool leads to the database that keeps runs and the shop's tables. It
	// should have Conns connections.
	Pool *pgxpool.Pool

	// Out receives what a person watching should read. Default: nothing.
	Out io.Writer

	// Orders is how many orders of the file, at least; a database that has
	// seen more goes on with those. Default: all of its 1,200.
	Orders int

	// Faults has the provider decline, fail, hang, forget and lose answers:
	// see Faults. The same orders have the same bad luck each time.
	Faults bool

	// Ledger is the provider's file. It belongs to the database: kept data
	// needs its ledger again. Default: a new file in the temporary directory
	// whose name the database keeps, so that the next run finds it.
	Ledger string

	// Provider is the URL of a provider that runs already; then Ledger is
	// not used. Default: one in a process of its own, which ends with this
	// one. The program must call Child first.
	Provider string

	// Slots is how many steps run at once. Default: 100.
	Slots int

	// Logger gets what the engine has to say. Default: nobody, because the
	// faults are there on purpose.
	Logger *slog.Logger
}

// Conns is a good size of the pool: two of the five steps are transactions, and
// with pgxpool's default of four connections they would run one at a time.
const Conns = 8

// What a shop would give minutes to, so that the example does not take hours.
// The late-arrival window must be longer than what a charge can be late by (the
// longest Slow of the faults, less the time-out that has passed by then) and the
// look-up behind.
const (
	timeout     = time.Second
	lookupDelay = 300 * time.Millisecond
	lateArrival = 3 * time.Second
	maxDelay    = 500 * time.Millisecond
	session     = 2 * time.Second

	// Seed is what all chance of the provider comes from.
	Seed = 1
)

// Summary is how it went.
type Summary struct {
	Runs         int
	Succeeded    int
	Declined     int // failed at charge with DECLINED: the hold stays
	Failed       int // in any other way
	Reconciled   int // charges whose answer never came, found by asking
	ChargedTwice int
	Forgotten    int // charged, and the shop does not know
	Took         time.Duration
}

func (s Summary) String() string {
	return fmt.Sprintf(`%d orders in %v
%6d succeeded
%6d declined
%6d failed otherwise
%6d charges found by asking, because their answer never came
%6d charged twice
%6d charged and forgotten
`, s.Runs, s.Took.Round(time.Millisecond), s.Succeeded, s.Declined, s.Failed, s.Reconciled, s.ChargedTwice, s.Forgotten)
}
