package engine

import (
	"context"
	"time"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/fault"
	"github.com/pawlworks/pawl/internal/plan"
)

// The claimer leases due jobs into free slots.
//
// Invariants: never more than the free slots; nothing under a session that is
// not trusted, since it would be given up as soon as it is held; nothing once
// Work's context has ended, also before anybody has noticed; a claim that has been sent is
// waited for, whatever stops meanwhile, and what it granted is executed or
// handed back; if its answer was lost, what stands under the owner and is not
// held here is handed back.

const (
	claimMost  = 200             // jobs a claim
	claimIdle  = 5 * time.Minute // the pulse and wake-ups say when there is work
	claimAgain = 100 * time.Millisecond
	claimPause = 50 * time.Millisecond // between claims that fill few of many slots
	claimFew   = 64                    // fewer slots are filled one by one
)

func (w *worker) claim(ctx context.Context) time.Duration {
	if w.inDoubt.Load() && !w.handBackLeaked() {
		return spread(claimAgain)
	}
	for ctx.Err() == nil && w.soft.Err() == nil && !w.draining.Load() && !w.sessionLost.Load() {
		if w.sessionTrust() <= 0 { // an idle process was stopped, or its heartbeats are lost
			w.pulse.wake()
			return spread(claimAgain)
		}
		free := w.e.config.Slots - w.held()
		routes, floors := w.routes()
		if free <= 0 || len(routes) == 0 {
			return claimIdle // a freed slot wakes the claimer
		}
		if w.e.config.Slots >= claimFew && free < w.e.config.Slots/4 && w.backlog.Load() && time.Since(w.claimed) < claimPause {
			return claimPause // under load slots are freed one by one: many are filled at once
		}
		w.claimed = time.Now()
		more, err := false, error(nil)
		for _, shard := range w.shardOrder() {
			n := min(free, claimMost)
			if n <= 0 {
				more = true
				break
			}
			var got int
			if got, err = w.claimShard(shard, routes, floors, n); err != nil {
				break
			}
			free -= got
			more = more || got == n
		}
		w.backlog.Store(more)
		suffers(w.failing.Load, w.failing.Store, err)
		if err != nil {
			w.log.Warn("pawl: claiming; trying again", "error", err)
			w.inDoubt.Store(true)
			return spread(claimAgain)
		}
		if !more {
			return claimIdle
		}
	}
	return claimIdle
}

func (w *worker) claimShard(shard int16, routes, floors []int32, n int) (int, error) {
	fault.Point(fault.BeforeClaim)
	sent := moments()
	rows, err := w.e.db.Claim(w.hard, db.ClaimParams{Shard: shard, Routes: routes, Floors: floors, Most: int32(n), Owner: w.owner,
		LeaseMs: ms(plan.DefaultLease), RuntimeMs: ms(plan.DefaultMaxRuntime)})
	w.e.metrics.claim.Record(w.hard, sent.elapsed().Seconds())
	if err != nil {
		return 0, err
	}
	fault.Point(fault.AfterClaim)
	for _, r := range rows {
		w.adopt(r, sent)
	}
	return len(rows), nil
}

// adopt starts the execution of a claimed job. One that is not understood is
// nobody else's trouble: it is handed back for others, a while later.
func (w *worker) adopt(r db.ClaimRow, sent moment) {
	b := w.binding(r.Definition, r.Workflow)
	g, err := w.granted(r, b, sent)
	if err != nil || b == nil {
		w.log.Error("pawl: a claimed job is not understood here; left for others", "run_id", r.RunID, "workflow", r.Workflow, "error", err)
		w.handBackRow(db.LeasedToRow{ID: r.ID, RunID: r.RunID, Token: r.Token, Route: r.Route, Node: r.Node, Refs: r.Refs, Mode: r.Mode,
			Attempt: r.Attempt, Transients: r.Transients, Unknowns: r.Unknowns, Questions: r.Questions}, r.Shard, unknownHere)
		return
	}
	l := newLease(w.hard, g)
	w.hold(l)
	w.execs.Go(func() { w.execute(g, l) })
}

// handBackLeaked returns false if the database did not answer.
func (w *worker) handBackLeaked() bool {
	w.inDoubt.Store(false)
	for _, shard := range w.e.shards {
		rows, err := w.e.db.LeasedTo(w.hard, db.LeasedToParams{Shard: shard, Owner: w.owner})
		if err != nil {
			w.inDoubt.Store(true)
			return false
		}
		for _, r := range rows {
			if !w.holds(r.ID) {
				w.handBackRow(r, shard, 0)
			}
		}
	}
	return true
}

// handBackRow hands back a lease that no execution here knows of.
func (w *worker) handBackRow(r db.LeasedToRow, shard int16, after time.Duration) {
	rs, err := parseRefs(r.Refs)
	if err != nil {
		return // it lapses, and stays as it is
	}
	g := &grant{shard: shard, job: r.ID, run: r.RunID, token: r.Token, route: r.Route, node: int(r.Node), path: r.Path, mode: r.Mode, refs: rs,
		attempt: r.Attempt, transients: r.Transients, unknowns: r.Unknowns, questions: r.Questions}
	c := g.handBack(after, "the worker did not take it up")
	w.execs.Go(func() { // a drain waits for it
		if a := w.submit(c); a.verdict == verdictDone && after <= 0 {
			w.tellOthers(c, a.state)
		}
	})
}
