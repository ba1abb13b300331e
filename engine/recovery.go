package engine

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/plan"
)

// Recovery takes expired leases back, from whoever held them, by what the rows
// alone say: a worker that does not know the step can do it rightly.
//
// Invariants: the session is closed first, under its row's lock, then its jobs
// are taken; everything is tested again in the statement that acts; it is
// rate-limited, since a clock that jumps forward expires every lease at once;
// nobody is elected, SKIP LOCKED shares the work.

const (
	recoverMost   = 1000
	recoverBudget = plan.Lapses
	recoverBase   = time.Second
	recoverPause  = 25 * time.Millisecond
	loopIdle      = 5 * time.Minute // the pulse says when there is something to do
)

func (w *worker) recover(ctx context.Context) time.Duration {
	closed, err := w.e.db.CloseLapsed(ctx)
	if err != nil {
		return w.failedLoop(ctx, "closing lapsed sessions", err)
	}
	for _, s := range closed {
		w.log.Warn("pawl: a worker's session lapsed; its jobs are taken back", "owner", s.ID, "lapsed", s.Name)
	}
	for _, shard := range w.e.shards {
		for behind := int64(0); ctx.Err() == nil; {
			n, last, err := w.takeBack(ctx, shard, behind, []int64{})
			if refused(err) || noPartition(err) || stuck(err) {
				err = w.takeBackApart(ctx, shard)
			}
			if err != nil {
				return w.failedLoop(ctx, "taking back expired leases", err)
			}
			if n < recoverMost || !sleep(ctx, recoverPause) {
				break
			}
			behind = last
		}
	}
	return loopIdle
}

// takeBack is one batch: of the jobs given, or of any behind one. It returns
// how many it looked at, which may be more than it could lock, and the last.
func (w *worker) takeBack(ctx context.Context, shard int16, behind int64, only []int64) (n int, last int64, err error) {
	rows, err := w.e.db.Recover(ctx, db.RecoverParams{Shard: shard, Behind: behind, OnlyJobs: only, Most: recoverMost, Budget: recoverBudget,
		BaseMs: ms(recoverBase), Jitter: rand.Float64(), Request: requestID()})
	if err != nil {
		return 0, 0, err
	}
	end := len(rows) - 1
	if end > 0 {
		w.recovered(rows[:end])
	}
	return int(*rows[end].Token), *rows[end].ID, nil
}

// takeBackApart: PostgreSQL refuses a value of one of them, so the batch is
// halved until the culprit stands alone; or somebody holds a day's history
// locked, so each day is taken for itself.
func (w *worker) takeBackApart(ctx context.Context, shard int16) error {
	rows, err := w.e.db.Lapsed(ctx, shard)
	if err != nil {
		return err
	}
	var again error // of a day that is held locked
	held := false
	var halve func([]int64) error
	halve = func(ids []int64) error {
		if len(ids) == 0 {
			return nil
		}
		_, _, err := w.takeBack(ctx, shard, 0, ids)
		switch {
		case stuck(err): // a day's partition is locked: the others are not held up
			w.log.Warn("pawl: jobs whose lease has expired can't be taken back just now", "jobs", len(ids), "error", err)
			again, held = err, true
			return nil
		case !refused(err) && !noPartition(err):
			return err
		case len(ids) == 1:
			w.log.Error("pawl: a job whose lease has expired can't be taken back", "job", ids[0], "error", err)
			return nil
		}
		if err := halve(ids[:len(ids)/2]); err != nil {
			return err
		}
		return halve(ids[len(ids)/2:])
	}
	for _, day := range byDay(rows, func(r db.LapsedRow) uuid.UUID { return r.RunID }) {
		held = false
		for chunk := range slices.Chunk(day, recoverMost) {
			var ids []int64
			for _, r := range chunk {
				ids = append(ids, r.ID)
			}
			if err := halve(ids); err != nil {
				return err
			}
			if held {
				break
			}
		}
	}
	return again
}

func (w *worker) recovered(rows []db.RecoverRow) {
	for _, r := range rows {
		w.reportLapse(r)
		switch *r.State {
		case statePending:
			w.claimIn(time.Duration(*r.DueInMs) * time.Millisecond)
			w.e.notifier.wake(wakeWork)
		case stateUncertain:
			w.reconciler.wake()
		default:
			w.e.listener.tell(wakeEnded)
			w.e.notifier.wake(wakeEnded)
		}
	}
	w.claimer.wake()
}

func (w *worker) failedLoop(ctx context.Context, what string, err error) time.Duration {
	if ctx.Err() != nil { // the worker stops
		return loopIdle
	}
	w.log.Warn("pawl: "+what+"; trying again", "error", err)
	return spread(downLatest)
}

// reconcile makes the questions that are due claimable.
func (w *worker) reconcile(ctx context.Context) time.Duration {
	for _, shard := range w.e.shards {
		for ctx.Err() == nil {
			rows, err := w.e.db.AskDue(ctx, db.AskDueParams{Shard: shard, Most: recoverMost, Request: requestID()})
			if err != nil {
				return w.failedLoop(ctx, "making questions about uncertain effects due", err)
			}
			if len(rows) > 0 {
				w.claimer.wake()
				w.e.notifier.wake(wakeWork)
			}
			if len(rows) < recoverMost {
				break
			}
		}
	}
	return loopIdle
}

// closeCancelled ends cancelled runs that nobody is working on.
func (w *worker) closeCancelled(ctx context.Context) time.Duration {
	for _, shard := range w.e.shards {
		if _, err := w.e.closeCancelled(ctx, shard, uuid.UUID{}); err != nil {
			return w.failedLoop(ctx, "ending cancelled runs", err)
		}
	}
	return loopIdle
}

// closeCancelled ends all cancelled runs of a shard that wait, or only one.
func (e *Engine) closeCancelled(ctx context.Context, shard int16, only uuid.UUID) (int, error) {
	n := 0
	for ctx.Err() == nil {
		ids, err := e.db.CloseCancelled(ctx, db.CloseCancelledParams{Shard: shard, OnlyRun: only, Most: recoverMost, Request: requestID()})
		if err != nil {
			return n, err
		}
		if n += len(ids); len(ids) > 0 {
			e.listener.tell(wakeEnded)
			e.notifier.wake(wakeEnded)
		}
		if len(ids) < recoverMost {
			break
		}
	}
	return n, nil
}
