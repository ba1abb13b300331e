package engine_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/pawlworks/pawl/internal/db"
)

// holdUpClock makes pawl.clock, which every statement reads behind its jobs'
// locks and before it locks a run, wait for the lock in sessions that say so.
func (b *fenceBed) holdUpClock() {
	b.exec(`CREATE OR REPLACE FUNCTION pawl.clock() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$ BEGIN
		IF current_setting('test.held', true) = 'on' THEN PERFORM pg_advisory_xact_lock_shared(14); END IF;
		RETURN pg_catalog.clock_timestamp(); END $$`)
}

// held runs statements on a connection of its own that is held up. The answer
// comes when it is let go.
func (b *fenceBed) held(do func(*db.Queries) (int, error)) (answer func() (int, error)) {
	b.t.Helper()
	c, err := pgx.Connect(context.Background(), b.pool.Config().ConnString())
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := c.Exec(context.Background(), "SET test.held = 'on'"); err != nil {
		b.t.Fatal(err)
	}
	pid, done := c.PgConn().PID(), make(chan struct{})
	var n int
	go func() {
		defer close(done)
		n, err = do(db.New(c))
		_ = c.Close(context.Background())
	}()
	b.waits(pid)
	return func() (int, error) { <-done; return n, err }
}

// TestRunChangesMeanwhile: between the snapshot of a statement that ends runs
// and its lock on the run's row, somebody changes that row. The statement could
// lock the new version and update none; then it must not have ended the job.
func TestRunChangesMeanwhile(t *testing.T) {
	t.Parallel()
	cancel := func(b *fenceBed, run uuid.UUID) {
		if _, err := b.q.Cancel(context.Background(), db.CancelParams{ID: run, Actor: "a", Reason: "r"}); err != nil {
			b.t.Fatal(err)
		}
	}
	end := func(f fenceEnd) func(*db.Queries, uuid.UUID, db.ClaimRow) (int, error) {
		return func(q *db.Queries, owner uuid.UUID, j db.ClaimRow) (n int, err error) {
			done, err := f.do(q, owner, j)
			if done {
				n = 1
			}
			return n, err
		}
	}
	back := func(q *db.Queries, _ uuid.UUID, _ db.ClaimRow) (int, error) {
		rows, err := taken(q.Recover(context.Background(), db.RecoverParams{Most: 10, Budget: 1, BaseMs: 1000, Request: rand.Int64()}))
		return len(rows), err
	}
	for _, c := range []struct {
		name      string
		prep      func(*fenceBed, uuid.UUID, db.ClaimRow)
		meanwhile func(*fenceBed, uuid.UUID)
		do        func(*db.Queries, uuid.UUID, db.ClaimRow) (int, error)
		outcome   string
	}{
		{"complete", nil, cancel, end(fenceEnds[2]), "succeeded"}, // the last step: it has
		{"fail", nil, cancel, end(fenceEnds[3]), "cancelled"},
		{"recover", func(b *fenceBed, _ uuid.UUID, j db.ClaimRow) {
			b.exec("UPDATE pawl.job SET expires_at = clock_timestamp() WHERE id = $1", j.ID)
		}, cancel, back, "cancelled"},
		{"close", func(b *fenceBed, owner uuid.UUID, j db.ClaimRow) {
			if done, err := fenceEnds[5].do(b.q, owner, j); err != nil || !done {
				b.t.Fatal(done, err)
			}
			cancel(b, j.RunID)
		}, func(b *fenceBed, run uuid.UUID) {
			// Nothing in this release does that to a cancelled run alone; a next one may.
			b.exec("UPDATE pawl.run SET tags = '{changed}' WHERE id = $1", run)
		}, func(q *db.Queries, _ uuid.UUID, _ db.ClaimRow) (int, error) {
			ids, err := q.CloseCancelled(context.Background(), db.CloseCancelledParams{Most: 10, Request: rand.Int64()})
			return len(ids), err
		}, "cancelled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newFenceBed(t)
			b.holdUpClock()
			owner := b.owner()
			j := b.one(owner)
			if c.prep != nil {
				c.prep(b, owner, j)
			}
			release := b.hold()
			defer release()
			answer := b.held(func(q *db.Queries) (int, error) { return c.do(q, owner, j) })
			c.meanwhile(b, j.RunID)
			before := b.rows(j.RunID)
			release()
			if n, err := answer(); err != nil || n != 0 {
				t.Errorf("it ended %d, %v", n, err)
			}
			if after := b.rows(j.RunID); after != before {
				t.Errorf("changed\n%s\nto\n%s", before, after)
			}
			n, err := c.do(b.q, owner, j)
			var outcome string
			if e := b.pool.QueryRow(context.Background(), "SELECT coalesce(outcome, '') FROM pawl.run WHERE id = $1", j.RunID).Scan(&outcome); err != nil || e != nil || n != 1 || outcome != c.outcome {
				t.Errorf("asked again: %d, %v; the run is %q, %v", n, err, outcome, e)
			}
		})
	}
}

// TestSessionsThatLive: only a session that has lapsed is closed, by what its
// row says when the statement has it, not by what it said before.
func TestSessionsThatLive(t *testing.T) {
	t.Parallel()
	b := newFenceBed(t)
	live, late := b.owner(), b.owner()
	if rows, err := b.q.CloseLapsed(context.Background()); err != nil || len(rows) != 0 {
		t.Fatalf("closed %v, which live: %v", rows, err)
	}
	b.holdUp()
	b.exec("UPDATE pawl.session SET expires_at = now() WHERE id = $1", late)
	release := b.hold()
	defer release()
	answer := b.held(func(q *db.Queries) (int, error) {
		rows, err := q.CloseLapsed(context.Background())
		return len(rows), err
	})
	if r, err := b.q.Pulse(context.Background(), db.PulseParams{TtlMs: 3_600_000, Owner: late, Routes: b.routes, Floors: make([]int32, len(b.routes))}); err != nil || !r.Alive {
		t.Fatal(r, err)
	}
	release()
	if n, err := answer(); err != nil || n != 0 {
		t.Errorf("it closed %d, one that lives and one that was renewed: %v", n, err)
	}
	b.exec("UPDATE pawl.session SET expires_at = now() WHERE id = $1", late)
	if rows, err := b.q.CloseLapsed(context.Background()); err != nil || len(rows) != 1 || rows[0].ID != late {
		t.Errorf("closed %v, %v; live is %v", rows, err, live)
	}
}
