package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/fault"
	"github.com/pawlworks/pawl/internal/plan"
	"github.com/pawlworks/pawl/steps"
)

// Transactions that the engine begins and commits around a user's code: a
// transactional step, and a cursor's CommitTx.
//
// Invariants: the user's writes and the fence commit together or not at all,
// and only then does anything in memory move; the fence is the last statement
// before COMMIT, and waits for the job's row rather than skipping it; the user's
// code cannot commit; on a deadlock or a serialisation failure all of it runs
// again; COMMIT is not bound to a context that the user may cancel; if its answer
// is lost the database is asked what became of it before anything runs again:
// under the lock of the job's row, which the transaction held, so that it is not
// under way any more.

const (
	txTries    = 5
	fenceLimit = "SELECT " + safePath + ", " + byIndex + ", pg_catalog.set_config('lock_timeout', '5s', true), pg_catalog.set_config('statement_timeout', '15s', true)"
)

// permitWait is for how long a transactional step waits at most for its turn,
// if its lease is not shorter; then others may have it.
const permitWait = 10 * time.Second

// permit waits for a transaction's turn: the pool keeps connections for the
// committer and the keeper. Whoever gets one calls permitted when it is over.
func (w *worker) permit(ctx context.Context, most time.Duration) bool {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case w.e.share.txs <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-t.C:
	}
	return false
}

func (w *worker) permitted() { <-w.e.share.txs }

// inTx runs body, which does not panic, and fence in one transaction. The fence returns what to do
// once the commit is known; inDoubt finds that out if COMMIT's answer was lost:
// it returns errAgain when nothing was written and all may run again.
func (w *worker) inTx(ctx context.Context, l *lease, body func(context.Context, pgx.Tx) error,
	fence func(context.Context, pgx.Tx) (func() error, error), inDoubt func() (func() error, error)) error {
	var err error
	for try := range txTries {
		if try > 0 && !sleep(l.ctx, spread(downSoonest<<try)) {
			return cause(l, ctx)
		}
		var committed func() error
		committed, err = w.tryTx(ctx, l, body, fence)
		if err == nil {
			return committed()
		}
		var lostAnswer commitError
		if errors.As(err, &lostAnswer) || errors.Is(err, errWritten) {
			committed, e := w.findOut(l, inDoubt)
			if e == nil {
				return committed()
			}
			if !errors.Is(e, errAgain) {
				return e
			}
			continue
		}
		if s := sqlState(err); s != "40001" && s != "40P01" && s != "55P03" {
			return err
		}
	}
	return err
}

func cause(l *lease, ctx context.Context) error {
	if err := context.Cause(l.ctx); err != nil {
		return err
	}
	return ctx.Err()
}

// commitError: COMMIT was sent, and what became of it is not known.
type commitError struct{ error }

func (e commitError) Unwrap() error { return e.error }

func (w *worker) tryTx(ctx context.Context, l *lease, body func(context.Context, pgx.Tx) error,
	fence func(context.Context, pgx.Tx) (func() error, error)) (func() error, error) {
	// A process that is stopped in here must not hold the user's rows for ever.
	tx, err := w.e.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: fmt.Sprintf("%s; SET LOCAL idle_in_transaction_session_timeout = %d", begin, min(max(ms(l.length), 1000), math.MaxInt32))})
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		tx.Rollback(ctx) // does nothing after a commit
	}()
	err = body(ctx, borrowed{tx})
	if c := tx.Conn(); !c.IsClosed() && c.PgConn().TxStatus() == 'I' { // by SQL: what has been written can't be taken back
		return nil, steps.Permanent("TX_ENDED", errNotYours)
	}
	if err != nil {
		return nil, err
	}
	if err := context.Cause(l.ctx); err != nil {
		return nil, err
	}
	// From here on the engine's own time-outs rule, not the user's context.
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*backstop)
	defer cancel()
	committed, err := fence(own, tx)
	if err != nil {
		return nil, err
	}
	fault.Point(fault.BeforeCommit)
	if err := tx.Commit(own); err != nil {
		if errors.Is(err, pgx.ErrTxCommitRollback) || saidNo(err) {
			return nil, err
		}
		return nil, commitError{err}
	}
	fault.Point(fault.AfterCommit)
	return committed, nil
}

// saidNo tells whether the server itself has refused to commit. Whatever ends the
// connection, a pooler's word about its server included, is no answer.
func saidNo(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) != 5 || cmp.Or(pg.SeverityUnlocalized, pg.Severity) != "ERROR" {
		return false
	}
	return pg.Code[:2] != "08" && pg.Code[:2] != "58" && pg.Code[:3] != "57P"
}

// findOut asks until the database answers or the process stops.
func (w *worker) findOut(l *lease, inDoubt func() (func() error, error)) (func() error, error) {
	for pause := downSoonest; ; pause = min(2*pause, downLatest) {
		committed, err := (func() error)(nil), w.standsStill(l)
		if err == nil {
			committed, err = inDoubt()
		}
		if err == nil || !errors.Is(err, errDown) {
			return committed, err
		}
		if !sleep(w.hard, spread(pause)) {
			l.lose()
			return nil, steps.ErrLeaseLost
		}
	}
}

// standsStill waits until no transaction holds the job's row: what was under way
// when its connection broke has been committed or rolled back then.
func (w *worker) standsStill(l *lease) error {
	ctx, cancel := context.WithTimeout(w.hard, backstop)
	defer cancel()
	if _, err := w.e.db.LockJob(ctx, db.LockJobParams{Shard: l.shard, ID: l.job}); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return errDown
	}
	return nil
}

// borrowed is the engine's transaction in a user's hands: he may not end it.
type borrowed struct{ pgx.Tx }

var errNotYours = errors.New("pawl: the engine begins and commits this transaction; return an error to roll it back")

func (borrowed) Commit(context.Context) error   { return errNotYours }
func (borrowed) Rollback(context.Context) error { return errNotYours }

// transact runs a transactional step: its writes, the fence and its completion
// are one commit.
func (w *worker) transact(l *lease, g *grant, step *plan.Step, in any) (*change, *answer) {
	var (
		c      *change
		a      answer
		failed error // the body's own
	)
	request := requestID() // one for all tries: an earlier one may have been written
	err := w.inTx(l.ctx, l, func(_ context.Context, tx pgx.Tx) error {
		l.waiting.Store(false)
		l.settled.Store(false) // an earlier try's COMMIT was refused
		out, err := w.call(l, g, step, in, tx)
		if err != nil {
			failed = err
			return err
		}
		failed = nil
		if c = w.completed(g, l, step, out); c.to == stateDead { // an output that can't be kept
			return errNotCommitted
		}
		c.request = request
		return nil
	}, func(ctx context.Context, tx pgx.Tx) (func() error, error) {
		if !l.settle() {
			return nil, steps.ErrLeaseLost
		}
		var err error
		if a, err = w.fence(ctx, tx, c); err != nil {
			l.settled.Store(false)
			return nil, err
		}
		if a.verdict != verdictDone {
			return nil, errWritten
		}
		return func() error { return nil }, nil
	}, func() (func() error, error) {
		ctx, cancel := context.WithTimeout(w.hard, backstop)
		defer cancel()
		found, err := w.lookUp(ctx, w.e.db, c)
		if err != nil {
			return nil, errDown
		}
		if found.verdict == verdictDone {
			a = found
			return func() error { return nil }, nil
		}
		// Nothing was written: again if the lease still stands.
		l.settled.Store(false)
		j, err := w.e.db.ReadJob(ctx, db.ReadJobParams{Shard: g.shard, ID: g.job})
		switch {
		case errors.Is(err, pgx.ErrNoRows):
		case err != nil:
			return nil, errDown
		case j.State == stateRunning && *j.Owner == w.owner && j.Token == g.token && j.ExpiresAt.After(j.Now):
			return nil, errAgain
		}
		l.lose()
		return nil, steps.ErrLeaseLost
	})
	switch {
	case err == nil:
		return c, &a
	}
	l.settled.Store(false) // nothing was committed
	switch {
	case errors.Is(err, errNotCommitted):
		return c, nil // recorded as dead, without the user's writes
	case failed != nil && !errors.Is(err, errNotYours):
		return w.outcome(g, l, step, output{}, failed), nil
	}
	return w.outcome(g, l, step, output{}, err), nil
}

var errNotCommitted = errors.New("not committed")

// fence writes the completion inside the user's transaction. It waits for the
// rows, in the lock order, so the statement can't find them busy.
func (w *worker) fence(ctx context.Context, tx pgx.Tx, c *change) (answer, error) {
	q := db.New(fenced{tx, []statement{
		stated(func(q *db.Queries) { q.LockJob(ctx, db.LockJobParams{Shard: c.shard, ID: c.job}) }),
		stated(func(q *db.Queries) { q.LockRun(ctx, db.LockRunParams{Shard: c.shard, ID: c.run}) }),
	}})
	sent := moments()
	rows, err := q.Transition(ctx, w.params(c.shard, []*change{c}))
	if err != nil {
		return answer{}, err
	}
	if len(rows) != 1 || *rows[0].Verdict != verdictDone {
		return answer{verdict: verdictLost}, nil
	}
	return c.doneBy(&rows[0], sent), nil
}
