package engine_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pawlworks/pawl/internal/db"
)

// heldRows are the statements that take many rows, each with a row that it has
// to pass over while somebody holds it. They give the number of what they did.
var heldRows = []struct {
	name string
	row  string // SQL that finds it
	prep func(m *heldBed)
	do   func(m *heldBed) (int, error)
}{
	{"Claim: the job", heldJob, (*heldBed).handedBack, (*heldBed).claimAll},
	{"Transition: the job", heldJob, nil, (*heldBed).complete},
	{"Transition: the run", heldRun, nil, (*heldBed).complete},
	{"Transition: the cursor", heldCursor, (*heldBed).saved, (*heldBed).complete},
	{"Recover: the job", heldJob, (*heldBed).expired, (*heldBed).recoverAll},
	{"Recover: the run", heldRun, (*heldBed).expired, (*heldBed).recoverAll}, // dead at the first lapse
	{"Recover: the cursor", heldCursor, func(m *heldBed) { m.saved(); m.cancelled(); m.expired() }, (*heldBed).recoverAll},
	{"AskDue: the job", heldJob, func(m *heldBed) { m.end(fenceEnd{to: "uncertain", event: "uncertain"}) }, func(m *heldBed) (int, error) {
		rows, err := m.q.AskDue(context.Background(), db.AskDueParams{Most: 10, Request: rand.Int64()})
		return len(rows), err
	}},
	{"CloseCancelled: the job", heldJob, func(m *heldBed) { m.handedBack(); m.cancelled() }, (*heldBed).closeAll},
	{"CloseCancelled: the run", heldRun, func(m *heldBed) { m.handedBack(); m.cancelled() }, (*heldBed).closeAll},
	{"CloseCancelled: the cursor", heldCursor, func(m *heldBed) { m.saved(); m.handedBack(); m.cancelled() }, (*heldBed).closeAll},
	{"CloseLapsed: the session", "SELECT FROM pawl.session WHERE id = (SELECT owner FROM pawl.job WHERE id = $1) FOR UPDATE", func(m *heldBed) {
		for _, j := range m.jobs {
			m.b.exec("UPDATE pawl.job SET owner = $2 WHERE id = $1", j.ID, m.b.owner())
		}
		m.b.exec("UPDATE pawl.session SET expires_at = now() WHERE id IN (SELECT owner FROM pawl.job)")
	}, func(m *heldBed) (int, error) {
		rows, err := m.q.CloseLapsed(context.Background())
		return len(rows), err
	}},
	{"SaveProgress: the job", heldJob, nil, func(m *heldBed) (n int, err error) {
		var before int
		const count = "SELECT count(*) FROM pawl.cursor"
		if err := m.b.pool.QueryRow(context.Background(), count).Scan(&before); err != nil {
			return 0, err
		}
		for _, j := range m.jobs {
			if err := m.q.SaveProgress(context.Background(), db.SaveProgressParams{Job: j.ID, Owner: m.owner, Token: j.Token, Encoding: "json", Done: 1, Total: 2}); err != nil {
				return 0, err
			}
		}
		err = m.b.pool.QueryRow(context.Background(), count).Scan(&n)
		return n - before, err
	}},
}

const (
	heldJob    = "SELECT FROM pawl.job WHERE id = $1 FOR UPDATE"
	heldRun    = "SELECT FROM pawl.run WHERE id = (SELECT run_id FROM pawl.job WHERE id = $1) FOR UPDATE"
	heldCursor = "SELECT FROM pawl.cursor WHERE job = $1 FOR UPDATE"
)

// heldBed is three jobs, leased to one owner. Its queries' connections do not
// wait for a lock for long: who waits fails.
type heldBed struct {
	b     *fenceBed
	q     *db.Queries
	owner uuid.UUID
	jobs  []db.ClaimRow
}

// TestHeldRows: nobody waits for what somebody else holds: it is passed over,
// unchanged, and the rest is done. When it is free its turn comes.
func TestHeldRows(t *testing.T) {
	t.Parallel()
	for _, c := range heldRows {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			b := newFenceBed(t)
			m := &heldBed{b: b, owner: b.owner()}
			m.q = db.New(poolWith(t, b.pool.Config().ConnString(), "lock_timeout", "4s"))
			b.start(3)
			m.jobs = b.claim(m.owner)
			if c.prep != nil {
				c.prep(m)
			}
			held := m.jobs[1]
			before := b.rows(held.RunID)
			tx, err := b.pool.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(ctx)
			if tag, err := tx.Exec(ctx, c.row, held.ID); err != nil || tag.RowsAffected() != 1 {
				t.Fatal(tag, err)
			}
			if n, err := c.do(m); err != nil || n != 2 {
				t.Errorf("while a row is held: %d, %v", n, err)
			}
			if after := b.rows(held.RunID); after != before {
				t.Errorf("what is held changed\n%s\nto\n%s", before, after)
			}
			if err := tx.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
			if n, err := c.do(m); err != nil || n != 1 {
				t.Errorf("when it is free: %d, %v", n, err)
			}
		})
	}
}

// poolWith is a pool whose sessions begin with a setting.
func poolWith(t *testing.T, url, name, value string) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	c.ConnConfig.RuntimeParams[name] = value
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (m *heldBed) end(f fenceEnd) {
	m.b.t.Helper()
	for _, j := range m.jobs {
		if done, err := f.do(m.q, m.owner, j); err != nil || !done {
			m.b.t.Fatal(done, err)
		}
	}
}

func (m *heldBed) handedBack() { m.end(fenceEnds[7]) }

func (m *heldBed) expired() {
	m.b.exec("UPDATE pawl.job SET expires_at = clock_timestamp() WHERE state = 'running'")
}

func (m *heldBed) cancelled() {
	m.b.t.Helper()
	for _, j := range m.jobs {
		if _, err := m.q.Cancel(context.Background(), db.CancelParams{ID: j.RunID, Actor: "a", Reason: "r"}); err != nil {
			m.b.t.Fatal(err)
		}
	}
}

func (m *heldBed) saved() {
	m.b.t.Helper()
	for _, j := range m.jobs {
		if done, err := fenceVerbs["cursor"](m.q, m.owner, j); err != nil || !done {
			m.b.t.Fatal(done, err)
		}
	}
}

func (m *heldBed) claimAll() (int, error) {
	rows, err := m.q.Claim(context.Background(), db.ClaimParams{Routes: m.b.routes, Floors: make([]int32, len(m.b.routes)), Most: 10, Owner: m.owner, LeaseMs: 600_000, RuntimeMs: 600_000})
	return len(rows), err
}

// complete ends all three at once, and with each its run.
func (m *heldBed) complete() (n int, err error) {
	rows, err := m.q.Transition(context.Background(), fenceEnds[2].transition(m.owner, m.jobs...))
	for _, r := range rows {
		if *r.Verdict == "done" {
			n++
		}
	}
	return n, err
}

func (m *heldBed) recoverAll() (int, error) {
	rows, err := taken(m.q.Recover(context.Background(), db.RecoverParams{Most: 10, Budget: 1, BaseMs: 1000, Request: rand.Int64()}))
	return len(rows), err
}

func (m *heldBed) closeAll() (int, error) {
	ids, err := m.q.CloseCancelled(context.Background(), db.CloseCancelledParams{Most: 10, Request: rand.Int64()})
	return len(ids), err
}
