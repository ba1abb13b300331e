// Package floor is what PostgreSQL can do at best with the durable writes that
// Pawl makes: the same rows in the same tables under the same fence, written
// by hand with pgx, in batches by natural group commit, and no engine around.
//
// It does what a completed step needs: a job advances in place by an UPDATE
// under owner, token and expiry, its row locked first, in the order of the
// ids; its payload is stored once, in the history; the last step ends the run
// and removes the job; all of a batch is one statement and one commit, and
// nothing goes on before that has answered.
//
// It does nothing else: no error is handled but by giving up, no attempt is
// retried, no flag of a cancelled run is read, no lease is renewed, no session
// is watched, no graph is followed, nothing is decoded, each process is told
// what to do by its own memory. So nothing real can be this fast.
package floor

import "github.com/pawlworks/pawl/bench/internal/system"

// Workflow is the name of the contestant's workflow in the tables.
const Workflow = "floor"

// Contestant is the floor.
var Contestant = system.Contestant{
	Name: "floor", Version: "this tree",
	Settings: "hand-written pgx, two writers, batches of 250 at most; starts by COPY; enable_seqscan and jit off, generic plans",
	New:      New,
}

const (
	writers   = 2
	batchMost = 250
	claimMost = 500
)
