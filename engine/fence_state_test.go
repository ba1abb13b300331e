package engine_test

import (
	"context"
	"testing"

	"github.com/pawlworks/pawl/internal/db"
)

// TestFenceOfState: the schema ties a lease to the state, so that no statement
// can take a job back and leave the lease. Were it not so, the state alone refuses.
func TestFenceOfState(t *testing.T) {
	t.Parallel()
	b := newFenceBed(t)
	b.exec(`DO $$ DECLARE c name; BEGIN
		FOR c IN SELECT conname FROM pg_constraint WHERE conrelid = 'pawl.job'::regclass AND contype = 'c' LOOP
			EXECUTE format('ALTER TABLE pawl.job DROP CONSTRAINT %I', c);
		END LOOP; END $$`)
	verbs := map[string]fenceVerb{}
	for verb, do := range fenceVerbs {
		verbs[verb] = do
	}
	for _, f := range fenceEnds {
		verbs[f.verb] = f.do
	}
	for verb, do := range verbs {
		owner := b.owner()
		j := b.one(owner)
		b.exec("UPDATE pawl.job SET state = 'waiting' WHERE id = $1", j.ID)
		before := b.rows(j.RunID)
		if done, err := do(b.q, owner, j); err != nil || done {
			t.Errorf("%s: done %v, %v", verb, done, err)
		}
		if after := b.rows(j.RunID); after != before {
			t.Errorf("%s changed\n%s\nto\n%s", verb, before, after)
		}
		b.exec("UPDATE pawl.job SET state = 'running' WHERE id = $1", j.ID) // for the doctor
	}
}

// TestFenceOfCursor: a write that was sent twice, or comes late, moves the cursor once.
func TestFenceOfCursor(t *testing.T) {
	t.Parallel()
	b := newFenceBed(t)
	owner := b.owner()
	j := b.one(owner)
	for _, c := range []struct{ seq, rows int64 }{{1, 0}, {0, 1}, {0, 0}, {2, 0}, {1, 1}, {0, 0}, {1, 0}} {
		before := b.rows(j.RunID)
		rows, err := b.q.SaveCursor(context.Background(), db.SaveCursorParams{ID: j.ID, LeaseMs: 900_000, Owner: owner, Token: j.Token, Seq: c.seq, Encoding: "json", Value: []byte("1")})
		if err != nil || int64(len(rows)) != c.rows {
			t.Errorf("from number %d: %v, %v", c.seq, rows, err)
		}
		if after := b.rows(j.RunID); (after == before) != (c.rows == 0) {
			t.Errorf("from number %d: %s\nto\n%s", c.seq, before, after)
		}
	}
}
