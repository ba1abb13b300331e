package engine

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/db"
)

// The pulse is the one statement of an idle process: it renews the session and
// tells what there is to do, and when it should ask again.
//
// Invariants: all wake-ups may be lost, the pulse finds what is due within a
// third of the session, or two thirds while it holds nothing and hears wake-ups;
// what holds leases renews its session each third; a session that was closed is
// never used again.
const pulseSoonest = 20 * time.Millisecond

// restful is when a worker that holds nothing renews its session; before a tenth
// of it is left, which is the margin. Losing it would cost nothing.
func (w *worker) restful() time.Duration {
	return time.Duration(float64(w.e.config.Session) * (0.55 + 0.15*rand.Float64()))
}

func (w *worker) beat(ctx context.Context) time.Duration {
	next := time.Hour
	for _, shard := range w.e.shards {
		if w.sessionLost.Load() { // given up by this process: a new one, whatever the database says of the old
			w.restart()
			return loopIdle
		}
		routes, floors := w.routes()
		sent := moments()
		r, err := w.askPulse(ctx, db.PulseParams{Shard: shard, Owner: w.owner, TtlMs: ms(w.e.config.Session), Routes: routes, Floors: floors})
		switch {
		case closedPool(err):
			w.restart() // Work says so
			return loopIdle
		case ctx.Err() != nil:
			return loopIdle
		case err != nil:
			w.e.metrics.missed(1, ofSessions)
			w.log.Warn("pawl: the pulse; trying again", "error", err)
			return spread(min(downLatest, w.e.config.Session/10))
		case !r.Alive, w.sessionLost.Load(): // closed by others, or given up meanwhile
			w.sessionLost.Store(true)
			w.keeper.wake()
			w.restart()
			return loopIdle
		}
		w.renewedSession(sent)
		w.readClock(sent, r.Now)
		next = min(next, w.tell(r))
	}
	return max(min(next, w.rest()), pulseSoonest)
}

// rest is how long the session may do without: two thirds while nothing is held,
// which the first lease puts an end to.
func (w *worker) rest() time.Duration {
	w.resting.Store(w.e.listener.hears.Load())
	if w.resting.Load() && w.held() == 0 {
		return w.restful()
	}
	w.resting.Store(false)
	return spread(w.e.config.Session / 3)
}

// askPulse gives a connection that does not answer up while there is time for
// another try within the session.
func (w *worker) askPulse(ctx context.Context, p db.PulseParams) (db.PulseRow, error) {
	ctx, cancel := context.WithTimeout(ctx, min(backstop, max(w.e.config.Session/3, time.Second)))
	defer cancel()
	return w.e.vital.Pulse(ctx, p)
}

// tell wakes the loops for which there is something to do, and returns when
// something else will be due.
func (w *worker) tell(r db.PulseRow) time.Duration {
	next := time.Hour
	in := func(at time.Time, l *loop) {
		if d := min(at.Sub(r.Now), time.Hour); d <= 0 {
			l.wake()
		} else {
			next = min(next, d+time.Duration(float64(100*time.Millisecond)*rand.Float64())) // not all processes at once
		}
	}
	for _, at := range r.DueAts {
		if at.After(r.Now) {
			next = min(next, at.Sub(r.Now))
		} else {
			w.claimer.wake()
		}
	}
	in(r.LapseAt, w.recovery)
	in(r.SessionLapseAt, w.recovery)
	in(r.AskAt, w.reconciler)
	if len(r.Cancelling) > 0 {
		w.cancelRuns(func(l *lease) bool {
			return slices.ContainsFunc(r.Cancelling, func(id uuid.UUID) bool { return id == l.run })
		})
		next = min(next, time.Second)
	}
	if r.Closable {
		w.closer.wake()
		next = min(next, time.Second)
	}
	return next
}
