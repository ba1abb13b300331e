package view

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/internal/db"
)

// Tail follows transitions as they are committed: each once, whatever the order
// of the commits.
//
// Invariants: a round reads from a moment before which everything is visible:
// the clock of the round before or, where transactions were writing then, the
// beginning of the oldest. What a round has told, and the next may read again, is
// remembered. Rounds are short transactions: nothing is held while somebody reads
// slowly what was told. A transaction that has written for longer than longest
// does not make all rounds read that much: when it has ended, one round reads what
// that transaction wrote.
type Tail struct {
	Workflow string
	Run      uuid.UUID // Nil: all runs
	Since    time.Time // what happened since; zero: from now on
	// Idle waits before the next round; false ends it.
	Idle func(ctx context.Context, took time.Duration) bool

	slack   time.Duration // as the constants below, which tests change
	longest time.Duration
	since   time.Time
	first   uuid.UUID            // the oldest run that may have moved since the last round
	writing map[string]time.Time // transactions that wrote for long, by xid
	told    map[told]written     // what the next round may read again
}

type told struct {
	run        uuid.UUID
	job, token int64
}

type written struct {
	at  time.Time
	xid string // of the transaction
}

const (
	tailPage  = 2000
	slack     = time.Second // for a clock that is set back a little
	longest   = 30 * time.Second
	unseen    = 30 * time.Second // read again, where others' transactions can't be seen
	tailRest  = 500 * time.Millisecond
	tailShare = 10 // a round's time is a tenth of all, at most
)

// Follow calls tell for each transition until ctx ends, which is no error.
func (t *Tail) Follow(ctx context.Context, pool Beginner, tell func(Event) error) error {
	if t.longest == 0 {
		t.slack, t.longest = slack, longest
	}
	t.writing, t.told = map[string]time.Time{}, map[told]written{}
	r := On(nil, nil)
	if err := Read(ctx, pool, func(s *Reader) error { r.shards, t.since = s.shards, s.now; return nil }); err != nil {
		return quiet(ctx, err)
	}
	if !t.Since.IsZero() {
		t.since = t.Since
	}
	for ctx.Err() == nil {
		begun := time.Now()
		if err := t.round(ctx, pool, r, tell); err != nil {
			return quiet(ctx, err)
		}
		if !t.rest(ctx, time.Since(begun)) {
			break
		}
	}
	return nil
}

func quiet(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (t *Tail) rest(ctx context.Context, took time.Duration) bool {
	if t.Idle != nil {
		return t.Idle(ctx, took)
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(max(tailRest, tailShare*took)):
		return true
	}
}

// round tells what has been committed since the last.
func (t *Tail) round(ctx context.Context, pool Beginner, r *Reader, tell func(Event) error) error {
	h, err := t.horizon(ctx, pool, r)
	if err != nil {
		return err
	}
	p := db.TailAllParams{First: t.from(h.oldest, t.since), Before: firstID(time.Now().Add(48 * time.Hour)), Since: t.since, Until: endOfTime, Workflow: t.Workflow, Xids: []string{}}
	if err := t.pages(ctx, pool, r, p, h.next, tell); err != nil {
		return err
	}
	if len(h.ended) > 0 { // what they had written before this round's beginning
		p.First, p.Since, p.Until, p.Xids = t.from(h.oldest, h.endedSince), h.endedSince, t.since, h.ended
		if err := t.pages(ctx, pool, r, p, h.next, tell); err != nil {
			return err
		}
	}
	for key, w := range t.told {
		if !t.again(w, h.next) {
			delete(t.told, key)
		}
	}
	t.since, t.first = h.next, h.oldest
	return nil
}

// again tells whether a round that begins there may read it again, or the one
// after a long transaction has ended.
func (t *Tail) again(w written, next time.Time) bool {
	_, writes := t.writing[w.xid]
	return writes || !w.at.Before(next)
}

var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// from is the oldest run that may have moved: of those that live now, of those
// that lived in the last round, of those started since.
func (t *Tail) from(oldest uuid.UUID, since time.Time) uuid.UUID {
	for _, id := range []uuid.UUID{t.first, firstID(since.Add(-24 * time.Hour))} {
		if id != uuid.Nil && newestFirst(id, oldest) > 0 {
			oldest = id
		}
	}
	return oldest
}

// pages tells all that p says; what the next round may read again is remembered.
func (t *Tail) pages(ctx context.Context, pool Beginner, r *Reader, p db.TailAllParams, next time.Time, tell func(Event) error) error {
	p.Most, p.AfterAt = tailPage, p.Since.Add(-time.Hour)
	for {
		events, err := t.page(ctx, pool, r, p)
		if err != nil {
			return err
		}
		for _, e := range events {
			key := told{e.Run, e.Job, e.Token}
			if _, before := t.told[key]; before {
				continue
			}
			if w := (written{e.At, e.xid}); t.again(w, next) {
				t.told[key] = w
			}
			if err := tell(e); err != nil {
				return err
			}
		}
		if len(events) < tailPage {
			return nil
		}
		end := events[len(events)-1]
		p.Since, p.AfterAt, p.AfterRun, p.AfterJob, p.AfterToken = end.At, end.At, end.Run, end.Job, end.Token
	}
}

// page reads some of what ended since, in the order of time.
func (t *Tail) page(ctx context.Context, pool Beginner, r *Reader, p db.TailAllParams) (events []Event, err error) {
	// The values decide which partitions are read: no plan for any of them.
	err = inTransaction(ctx, pool, pgx.ReadCommitted, theseValues, func(q *db.Queries) error {
		rows, err := t.rows(ctx, q, p)
		if err != nil {
			return fmt.Errorf("pawl: reading the history: %w", err)
		}
		r.q = q
		var defs []int64
		for _, h := range rows {
			if h.Definition != nil {
				defs = append(defs, *h.Definition)
			}
		}
		if len(defs) > 0 {
			if err := r.load(ctx, defs...); err != nil {
				return err
			}
		}
		for _, h := range rows {
			e := Event{At: h.EndedAt.UTC(), Run: h.RunID, Workflow: text(h.Workflow), Key: text(h.Key), Path: h.Path, Event: h.Event, From: h.FromState, To: h.ToState,
				Attempt: int(h.Attempt), GrantedAt: moment(h.GrantedAt), Class: text(h.Class), Code: text(h.Code), Reason: text(h.Reason), Writer: h.Writer,
				Worker: text(h.Worker), Actor: text(h.Actor), Job: h.Job, Token: h.Token, xid: h.Xid, Step: fmt.Sprint("number ", h.Node)}
			if h.Definition != nil {
				e.Step = r.place(*h.Definition, h.Node).Step
			}
			events = append(events, e)
		}
		return nil
	})
	return events, err
}

func (t *Tail) rows(ctx context.Context, q *db.Queries, p db.TailAllParams) ([]db.TailAllRow, error) {
	if t.Run == uuid.Nil {
		return q.TailAll(ctx, p)
	}
	rows, err := q.TailRun(ctx, db.TailRunParams{Shard: shardOf(t.Run), RunID: t.Run, Since: p.Since, AfterAt: p.AfterAt, AfterRun: p.AfterRun, AfterJob: p.AfterJob,
		AfterToken: p.AfterToken, Most: p.Most})
	all := make([]db.TailAllRow, len(rows))
	for i, h := range rows {
		all[i] = db.TailAllRow(h)
	}
	return all, err
}
