package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/db"
)

// mixed is a handful of runs in every state, some of each being cancelled:
// what every verb finds something to do in, and something to refuse.
type mixed struct {
	*fenceBed
	owner uuid.UUID
	jobs  []db.ClaimRow // as they were claimed
}

func (b *fenceBed) mixed() *mixed {
	b.t.Helper()
	ctx := context.Background()
	m := &mixed{fenceBed: b, owner: b.owner()}
	runs := b.start(12)
	for _, j := range b.claim(m.owner) {
		if slices.ContainsFunc(runs, func(r engine.Run[int]) bool { return r.ID == j.RunID.String() }) {
			m.jobs = append(m.jobs, j)
		}
	}
	slices.SortFunc(m.jobs, func(a, b db.ClaimRow) int { return int(a.ID - b.ID) })
	if len(m.jobs) != 12 {
		b.t.Fatalf("%d jobs were claimed", len(m.jobs))
	}
	b.exec("UPDATE pawl.job SET expires_at = clock_timestamp() WHERE id = ANY ($1)", []int64{m.jobs[0].ID, m.jobs[1].ID})
	for i, f := range map[int]fenceEnd{2: fenceEnds[3], 3: fenceEnds[3], 4: fenceEnds[6], 5: fenceEnds[6], 6: fenceEnds[7], 7: fenceEnds[7]} {
		if done, err := f.do(b.q, m.owner, m.jobs[i]); err != nil || !done {
			b.t.Fatal(done, err)
		}
	}
	for i := 0; i < 12; i += 2 {
		_, err := b.q.Cancel(ctx, db.CancelParams{ID: m.jobs[i].RunID, Actor: "a", Reason: "r"})
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			b.t.Fatal(err)
		}
	}
	return m
}

// mixedVerbs act on all the runs; backwards where a verb takes one at a time
// and so has an order of its own.
var mixedVerbs = []struct {
	name string
	do   func(m *mixed, backwards bool) error
}{
	{"complete", func(m *mixed, _ bool) error { return m.transition(fenceEnds[2]) }},
	{"hand over", func(m *mixed, _ bool) error { return m.transition(fenceEnds[0]) }},
	{"fail", func(m *mixed, _ bool) error { return m.transition(fenceEnds[3]) }},
	{"snooze", func(m *mixed, _ bool) error { return m.transition(fenceEnds[5]) }},
	{"complete in a transaction", func(m *mixed, backwards bool) error {
		return m.each(backwards, func(j db.ClaimRow) error {
			return pgx.BeginFunc(context.Background(), m.pool, func(tx pgx.Tx) error {
				q := m.q.WithTx(tx)
				_, e1 := q.LockJob(context.Background(), db.LockJobParams{ID: j.ID})
				_, e2 := q.LockRun(context.Background(), db.LockRunParams{ID: j.RunID})
				if errors.Is(e1, pgx.ErrNoRows) {
					e1 = nil // ended meanwhile
				}
				if err := errors.Join(e1, e2); err != nil {
					return err
				}
				_, err := q.Transition(context.Background(), fenceEnds[2].transition(m.owner, j))
				return err
			})
		})
	}},
	{"cancel", func(m *mixed, backwards bool) error {
		return m.each(backwards, func(j db.ClaimRow) error { return m.e.Cancel(context.Background(), j.RunID.String(), mixedBy) })
	}},
	{"replay", func(m *mixed, backwards bool) error {
		return m.each(backwards, func(j db.ClaimRow) error { return m.e.Replay(context.Background(), j.RunID.String(), mixedBy) })
	}},
	{"resolve", func(m *mixed, backwards bool) error {
		return m.each(backwards, func(j db.ClaimRow) error {
			return m.e.Resolve(context.Background(), j.RunID.String(), mixedBy, engine.ItNeverHappened("e"))
		})
	}},
	{"recover", func(m *mixed, backwards bool) error {
		budget := int32(1) // dead at the first lapse: that locks runs too
		if backwards {
			budget = 5
		}
		_, err := m.q.Recover(context.Background(), db.RecoverParams{Most: 500, Budget: budget, BaseMs: 1, Request: rand.Int64()})
		return err
	}},
	{"ask", func(m *mixed, _ bool) error {
		_, err := m.q.AskDue(context.Background(), db.AskDueParams{Most: 500, Request: rand.Int64()})
		return err
	}},
	{"close", func(m *mixed, _ bool) error {
		_, err := m.q.CloseCancelled(context.Background(), db.CloseCancelledParams{Most: 500, Request: rand.Int64()})
		return err
	}},
	{"claim", func(m *mixed, _ bool) error {
		_, err := m.q.Claim(context.Background(), db.ClaimParams{Routes: m.routes, Floors: make([]int32, len(m.routes)), Most: 500, Owner: m.owner, LeaseMs: 600_000, RuntimeMs: 600_000})
		return err
	}},
}

var mixedBy = engine.By{Actor: "a", Reason: "r"}

func (m *mixed) transition(f fenceEnd) error {
	_, err := m.q.Transition(context.Background(), f.transition(m.owner, m.jobs...))
	return err
}

func (m *mixed) each(backwards bool, do func(db.ClaimRow) error) error {
	jobs := slices.Clone(m.jobs)
	if backwards {
		slices.Reverse(jobs)
	}
	for _, j := range jobs {
		if err := do(j); err != nil && !errors.Is(err, engine.ErrState) {
			return err
		}
	}
	return nil
}

// taken is what recovery took back: its last row says only how far it looked.
func taken(rows []db.RecoverRow, err error) ([]db.RecoverRow, error) {
	return rows[:max(len(rows)-1, 0)], err
}
