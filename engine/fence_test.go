package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// fenceHolds are the ways in which a writer can be wrong about its lease: what
// it believes is changed, or what is true.
var fenceHolds = []struct {
	name  string
	wrong func(b *fenceBed, owner *uuid.UUID, j *db.ClaimRow)
}{
	{"stale token", func(b *fenceBed, _ *uuid.UUID, j *db.ClaimRow) {
		// It lapsed and was granted again, to the same owner.
		b.exec("UPDATE pawl.job SET token = token + 2, attempt = attempt + 1 WHERE id = $1", j.ID)
		b.exec(`INSERT INTO pawl.history (shard, run_id, job, token, ended_at, node, attempt, request, path, mode, from_state, to_state, event, writer)
			SELECT shard, run_id, id, token - 1, now(), node, 1, 7, path, mode, 'running', 'pending', 'lapsed', 'recovery' FROM pawl.job WHERE id = $1`, j.ID)
	}},
	{"token of the future", func(_ *fenceBed, _ *uuid.UUID, j *db.ClaimRow) { j.Token++ }},
	{"expired lease", func(b *fenceBed, _ *uuid.UUID, j *db.ClaimRow) {
		b.exec("UPDATE pawl.job SET expires_at = pawl.clock() - interval '1 ms' WHERE id = $1", j.ID)
	}},
	{"another owner", func(b *fenceBed, owner *uuid.UUID, _ *db.ClaimRow) { *owner = b.owner() }},
	{"taken back, not granted yet", func(b *fenceBed, _ *uuid.UUID, j *db.ClaimRow) {
		// By a statement that forgot to raise the token: the state alone refuses.
		b.exec("UPDATE pawl.job SET state = 'waiting', owner = NULL, granted_at = NULL, expires_at = NULL, deadline_at = NULL, at_expiry = 'retry', begun = false WHERE id = $1", j.ID)
		b.t.Cleanup(func() { b.exec("UPDATE pawl.job SET token = token - 1 WHERE id = $1", j.ID) }) // for the doctor
	}},
}

var fenceVerbs = map[string]fenceVerb{
	"renew": func(q *db.Queries, owner uuid.UUID, j db.ClaimRow) (bool, error) {
		rows, err := q.Renew(context.Background(), db.RenewParams{Ids: []int64{j.ID}, Tokens: []int64{j.Token}, LeaseMs: []int64{900_000}, Owner: owner})
		return err == nil && *rows[0].Verdict == "done", err
	},
	"begin": func(q *db.Queries, owner uuid.UUID, j db.ClaimRow) (bool, error) {
		rows, err := q.Begin(context.Background(), db.BeginParams{Ids: []int64{j.ID}, Tokens: []int64{j.Token}, LeaseMs: []int64{900_000}, RuntimeMs: []int64{900_000},
			Begun: []bool{j.Mode == "do"}, AtExpiry: []string{"ask"}, EffectKeys: [][]byte{[]byte("k")}, EffectHashes: [][]byte{[]byte("h")}, Owner: owner})
		return err == nil && *rows[0].Verdict == "done", err
	},
	"cursor": func(q *db.Queries, owner uuid.UUID, j db.ClaimRow) (bool, error) {
		rows, err := q.SaveCursor(context.Background(), db.SaveCursorParams{ID: j.ID, LeaseMs: 900_000, Owner: owner, Token: j.Token, Seq: j.CursorSeq, Encoding: "json", Value: []byte("1")})
		return len(rows) == 1, err
	},
	"progress": func(q *db.Queries, owner uuid.UUID, j db.ClaimRow) (bool, error) {
		// It has no answer: whether it wrote is seen in the rows.
		return false, q.SaveProgress(context.Background(), db.SaveProgressParams{Job: j.ID, Owner: owner, Token: j.Token, Encoding: "json", Done: 1, Total: 2})
	},
}

// TestFence takes each wrong belief through every statement that an attempt
// ends or lives by: refused, and not a row changed. With the right belief each
// of them writes, or the test would show nothing.
func TestFence(t *testing.T) {
	t.Parallel()
	b := newFenceBed(t)
	check := func(t *testing.T, verb string, do fenceVerb, job func(*fenceBed, uuid.UUID) db.ClaimRow) {
		for _, h := range fenceHolds {
			t.Run(h.name, func(t *testing.T) {
				b := *b
				b.t = t
				owner := b.owner()
				j := job(&b, owner)
				h.wrong(&b, &owner, &j)
				before := b.rows(j.RunID)
				if done, err := do(b.q, owner, j); err != nil || done {
					t.Errorf("%s with %s: done %v, %v", verb, h.name, done, err)
				}
				if after := b.rows(j.RunID); after != before {
					t.Errorf("%s with %s changed\n%s\nto\n%s", verb, h.name, before, after)
				}
			})
		}
		t.Run("its own", func(t *testing.T) {
			b := *b
			b.t = t
			owner := b.owner()
			j := job(&b, owner)
			before := b.rows(j.RunID)
			if done, err := do(b.q, owner, j); err != nil || !done && verb != "progress" || b.rows(j.RunID) == before {
				t.Errorf("%s with a good lease: done %v, %v", verb, done, err)
			}
		})
	}
	for verb, do := range fenceVerbs {
		t.Run(verb, func(t *testing.T) { check(t, verb, do, (*fenceBed).one) })
	}
	for _, f := range fenceEnds {
		t.Run(f.verb, func(t *testing.T) { check(t, f.verb, f.do, (*fenceBed).one) })
	}
	for _, f := range fenceAnswers {
		t.Run("reconcile: "+f.verb, func(t *testing.T) { check(t, f.verb, f.do, (*fenceBed).question) })
	}
}

// question is a job whose outcome is being asked about, leased to the owner.
func (b *fenceBed) question(owner uuid.UUID) db.ClaimRow {
	b.t.Helper()
	j := b.one(owner)
	f := fenceEnd{to: "uncertain", event: "uncertain", class: "uncertain", code: "NO"}
	if done, err := f.do(b.q, owner, j); err != nil || !done {
		b.t.Fatal(done, err)
	}
	if rows, err := b.q.AskDue(context.Background(), db.AskDueParams{Most: 1000, Request: rand.Int64()}); err != nil || len(rows) == 0 {
		b.t.Fatal(rows, err)
	}
	for _, r := range b.claim(owner) {
		if r.ID == j.ID && r.Mode == "ask" {
			return r
		}
	}
	b.t.Fatal("the question was not claimed")
	return db.ClaimRow{}
}

// TestFenceOfOthers: recovery, the reconciler and people are bound as well.
func TestFenceOfOthers(t *testing.T) {
	t.Parallel()
	b := newFenceBed(t)
	ctx := context.Background()
	owner := b.owner()
	end := func(f fenceEnd) db.ClaimRow {
		j := b.one(owner)
		if done, err := f.do(b.q, owner, j); err != nil || !done {
			t.Fatal(done, err)
		}
		return j
	}
	live, dead := b.one(owner), end(fenceEnds[3])
	later, person := end(fenceEnd{to: "uncertain", event: "uncertain", delay: 3_600_000}), end(fenceEnds[6])
	for _, c := range []struct {
		name string
		job  db.ClaimRow
		do   func() (int, error)
	}{
		{"recovery of a live lease", live, func() (int, error) {
			rows, err := taken(b.q.Recover(ctx, db.RecoverParams{Most: 10, Budget: 5, BaseMs: 1000, Request: rand.Int64()}))
			return len(rows), err
		}},
		{"a question before its time", later, func() (int, error) {
			rows, err := b.q.AskDue(ctx, db.AskDueParams{Most: 10, Request: rand.Int64()})
			return len(rows), err
		}},
		{"the end of a run that nobody cancelled", dead, func() (int, error) {
			ids, err := b.q.CloseCancelled(ctx, db.CloseCancelledParams{OnlyRun: dead.RunID, Most: 10, Request: rand.Int64()})
			return len(ids), err
		}},
		{"replay with a stale token", dead, func() (int, error) {
			_, err := b.q.ReplayJob(ctx, db.ReplayJobParams{ID: dead.ID, Token: dead.Token, Request: rand.Int64(), Actor: "a", Reason: "r"})
			return fenceFound(err)
		}},
		{"replay of what is not dead", person, func() (int, error) {
			_, err := b.q.ReplayJob(ctx, db.ReplayJobParams{ID: person.ID, Token: person.Token + 1, Request: rand.Int64(), Actor: "a", Reason: "r"})
			return fenceFound(err)
		}},
		{"resolving with a stale token", person, func() (int, error) {
			_, err := b.q.ResolveJob(ctx, db.ResolveJobParams{ID: person.ID, Token: person.Token, Request: rand.Int64(), Actor: "a", Reason: "r", Evidence: "e"})
			return fenceFound(err)
		}},
		{"resolving what is not uncertain", dead, func() (int, error) {
			_, err := b.q.ResolveJob(ctx, db.ResolveJobParams{ID: dead.ID, Token: dead.Token + 1, Request: rand.Int64(), Actor: "a", Reason: "r", Evidence: "e"})
			return fenceFound(err)
		}},
	} {
		before := b.rows(c.job.RunID)
		if n, err := c.do(); err != nil || n != 0 {
			t.Errorf("%s: %d, %v", c.name, n, err)
		}
		if after := b.rows(c.job.RunID); after != before {
			t.Errorf("%s changed\n%s\nto\n%s", c.name, before, after)
		}
	}
	b.exec("UPDATE pawl.session SET closed_at = now() WHERE id = $1", owner)
	b.start(1)
	if rows := b.claim(owner); len(rows) != 0 {
		t.Errorf("a closed session was granted %d leases", len(rows))
	}
}

func fenceFound(err error) (int, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return 1, err
}

// TestFenceInTransactions: where the user's own writes travel with the fence
// they are rolled back with it. While the body runs the lease is made wrong;
// what the engine makes of its return must change no row of the run.
func TestFenceInTransactions(t *testing.T) {
	t.Parallel()
	for _, h := range fenceHolds {
		if h.name == "token of the future" {
			continue // the engine knows its token
		}
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			for _, verb := range []string{"completion", "failure", "cursor", "CommitTx", "complete", "fail", "snooze"} {
				t.Run(verb, func(t *testing.T) { fenceInEngine(t, verb, h.wrong) })
			}
		})
	}
}

func fenceInEngine(t *testing.T, verb string, wrong func(*fenceBed, *uuid.UUID, *db.ClaimRow)) {
	t.Parallel()
	ctx := context.Background()
	b := &fenceBed{t: t, pool: pgtest.Pool(t)}
	b.q = db.New(b.pool)
	b.exec("CREATE TABLE ledger (n int)")
	var before string
	spoilt, lost := make(chan uuid.UUID, 1), make(chan error, 1)
	spoil := func(n int) {
		if n != 0 {
			return // the other run, whose end tells that the first one's was dealt with
		}
		var j db.ClaimRow
		var owner uuid.UUID
		if err := b.pool.QueryRow(ctx, "SELECT id, run_id, owner, token FROM pawl.job WHERE state = 'running'").Scan(&j.ID, &j.RunID, &owner, &j.Token); err != nil {
			t.Error(err)
		}
		other := owner
		if wrong(b, &other, &j); other != owner {
			b.exec("UPDATE pawl.job SET owner = $2 WHERE id = $1", j.ID, other)
		}
		before = b.rows(j.RunID)
		select {
		case spoilt <- j.RunID:
		default:
			t.Error("a further attempt")
		}
	}
	tell := func(n int, err error) {
		if n == 0 {
			select {
			case lost <- err:
			default:
				t.Error("a further attempt")
			}
		}
	}
	insert := func(tx pgx.Tx, n int) error {
		_, err := tx.Exec(ctx, "INSERT INTO ledger VALUES ($1)", n)
		return err
	}
	flow := steps.Declare[int, int]("spoilt")
	def := map[string]steps.Definition{
		"completion": flow.Of(steps.NewTx("tx", func(_ context.Context, tx pgx.Tx, n int) (int, error) {
			err := insert(tx, n)
			spoil(n)
			return n, err
		})),
		"failure": flow.Of(steps.NewTx("tx", func(_ context.Context, tx pgx.Tx, n int) (int, error) {
			err := insert(tx, n)
			spoil(n)
			if n == 0 {
				err = steps.Permanent("NO", nil)
			}
			return n, err
		})),
		"cursor": flow.Of(steps.NewLong("long", func(ctx context.Context, n int, cur *steps.Cursor[int]) (int, error) {
			spoil(n)
			err := cur.Commit(ctx, 1)
			tell(n, err)
			return n, err
		})),
		"CommitTx": flow.Of(steps.NewLong("long", func(ctx context.Context, n int, cur *steps.Cursor[int]) (int, error) {
			err := cur.CommitTx(ctx, 1, func(tx pgx.Tx) error {
				err := insert(tx, n)
				spoil(n)
				return err
			})
			tell(n, err)
			return n, err
		})),
	}
	for _, f := range []struct {
		verb string
		err  error
	}{{"complete", nil}, {"fail", steps.Permanent("NO", nil)}, {"snooze", steps.Snooze(time.Hour)}} {
		def[f.verb] = flow.Of(steps.New("plain", func(_ context.Context, n int) (int, error) {
			spoil(n)
			if n == 0 {
				return n, f.err
			}
			return n, nil
		}))
	}
	e, err := engine.New(ctx, b.pool, engine.Config{Workflows: []steps.Definition{def[verb]}, Slots: 1, Session: time.Hour, NoListen: true})
	if err != nil {
		t.Fatal(err)
	}
	work(t, e)
	// The first pulse would have recovery take back, rightly, what has expired by
	// then, and the next comes in twenty minutes: so nobody does while the test looks.
	effUntil(t, "the first pulse", func() bool {
		return effScan[bool](t, b.pool, "SELECT EXISTS (SELECT FROM pawl.session WHERE expires_at > started_at + interval '1 hour')")
	})
	run, err := engine.Start(ctx, e, flow, 0)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-spoilt:
	case <-time.After(50 * time.Second):
		t.Fatal("the body was not run")
	}
	other, err := engine.Start(ctx, e, flow, 1)
	if err != nil {
		t.Fatal(err)
	}
	wait, cancel := context.WithTimeout(ctx, 50*time.Second)
	defer cancel()
	if _, err := other.Wait(wait); err != nil {
		t.Fatal(err)
	}
	after := b.rows(uuid.MustParse(run.ID))
	if after != before {
		t.Errorf("changed\n%s\nto\n%s", before, after)
	}
	var ledger, others, cursors int
	if err := b.pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE n = 0), count(*) FILTER (WHERE n = 1), (SELECT count(*) FROM pawl.cursor) FROM ledger`).
		Scan(&ledger, &others, &cursors); err != nil {
		t.Fatal(err)
	}
	if ledger+cursors != 0 {
		t.Errorf("%d of the user's writes are there, %d cursors", ledger, cursors)
	}
	if wrote := verb == "completion" || verb == "failure" || verb == "CommitTx"; others != 1 && wrote {
		t.Errorf("with a good lease %d of the user's writes are there", others)
	}
	if verb == "cursor" || verb == "CommitTx" {
		if err := <-lost; !errors.Is(err, steps.ErrLeaseLost) {
			t.Errorf("the body was told %v", err)
		}
	}
}
