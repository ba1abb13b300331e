package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/steps"
)

// The lease keeper renews leases that have made progress, and gives up those
// that can't be trusted any more.
//
// Invariants: a lease without progress is not renewed; the context of an
// attempt is cancelled with ErrLeaseLost before the database can give the job
// away, also when the database does not answer: the statement that renews never
// stands in the way of the check; when the session can't be trusted, no lease is.

const (
	renewalsMost  = 4 // at once: one that no answer comes to must not hold up the others
	keeperSoonest = 5 * time.Millisecond
	keeperLatest  = 250 * time.Millisecond // a suspended machine is noticed this soon after it wakes
	keeperIdle    = time.Minute
	showWithin    = 2 * time.Second
)

func (w *worker) keep(ctx context.Context) time.Duration {
	if w.sessionTrust() <= 0 && !w.sessionLost.Swap(true) {
		w.log.Warn("pawl: the session could not be renewed in time: giving up its leases; a new one follows", "owner", w.owner)
		w.pulse.wake()
	}
	next := keeperLatest
	var due []*lease
	leases, now := w.all(), moments()
	for _, l := range leases {
		left := l.trusted(now)
		if left <= 0 || w.sessionLost.Load() {
			l.lose()
			continue
		}
		next = min(next, left)
		if in, progressed := l.beatIn(now); progressed && in <= 0 {
			due = append(due, l)
		} else if progressed {
			next = min(next, in)
		}
	}
	if len(due) > 0 {
		select {
		case w.renewals <- struct{}{}:
			for _, l := range due {
				l.asks()
			}
			w.later.Go(func() {
				defer func() { <-w.renewals }()
				w.renew(ctx, due)
			})
		default: // they all wait for the database
		}
	}
	if len(leases) == 0 {
		return keeperIdle // holding a lease wakes the keeper
	}
	return max(next, keeperSoonest)
}

// renew asks once.
func (w *worker) renew(ctx context.Context, ls []*lease) {
	byShard := map[int16][]*lease{}
	for _, l := range ls {
		byShard[l.shard] = append(byShard[l.shard], l)
	}
	for shard, ls := range byShard {
		slices.SortFunc(ls, func(a, b *lease) int { return cmp.Compare(a.job, b.job) })
		for chunk := range slices.Chunk(ls, groupItems) {
			w.renewChunk(ctx, shard, chunk)
		}
	}
}

func (w *worker) renewChunk(ctx context.Context, shard int16, ls []*lease) {
	p := db.RenewParams{Shard: shard, Owner: w.owner}
	byJob := map[int64]*lease{}
	progress := map[int64]int64{}
	for _, l := range ls {
		p.Ids = append(p.Ids, l.job)
		p.Tokens = append(p.Tokens, l.token)
		p.LeaseMs = append(p.LeaseMs, ms(l.length))
		byJob[l.job] = l
		progress[l.job] = l.progress.Load()
	}
	sent := moments()
	rows, err := w.e.vital.Renew(ctx, p)
	if refused(err) && len(ls) > 1 { // halved until the culprit stands alone
		w.renewChunk(ctx, shard, ls[:len(ls)/2])
		w.renewChunk(ctx, shard, ls[len(ls)/2:])
		return
	}
	defer func() { // those that were busy are due again at the next look
		for _, l := range ls {
			l.answered()
		}
	}()
	if err != nil {
		w.e.metrics.missed(len(ls), ofLeases)
		w.log.Warn("pawl: renewing leases; trying again", "leases", len(ls), "error", err)
		sleep(ctx, spread(downSoonest))
		return
	}
	for _, r := range rows {
		l := byJob[*r.ID]
		switch *r.Verdict {
		case verdictDone:
			l.extend(sent, r.ExpiresAt.Sub(*r.Now))
			l.renewedFor(progress[*r.ID])
		case verdictLost:
			if !l.waiting.Load() { // else its commit says what became of it
				l.lose()
			}
		}
	}
	if w.showing.CompareAndSwap(false, true) { // when what counts is done, and in nobody's way
		w.later.Go(func() {
			defer w.showing.Store(false)
			ctx, cancel := context.WithTimeout(ctx, showWithin)
			defer cancel()
			for _, l := range ls {
				w.show(ctx, l)
			}
		})
	}
}

// show writes what a long step says of its progress.
func (w *worker) show(ctx context.Context, l *lease) {
	s := l.shown.Load()
	if s == nil || s == l.saved.Load() {
		return
	}
	if err := w.e.db.SaveProgress(ctx, db.SaveProgressParams{Shard: l.shard, Job: l.job, Owner: w.owner, Token: l.token, Encoding: encodingJSON,
		Done: s[0], Total: s[1]}); err == nil {
		l.saved.Store(s)
	}
}

// interrupt ends the attempts that may be ended, with a cause.
func (w *worker) interrupt(cause error, of func(*lease) bool) {
	for _, l := range w.all() {
		if of(l) {
			l.interrupt(cause)
		}
	}
}

func (w *worker) cancelRuns(of func(*lease) bool) { w.interrupt(steps.ErrCancelled, of) }
