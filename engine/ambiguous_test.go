package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/steps"
)

// The connection breaks around a commit: before the server has it, and after
// it was done but before the answer came. Either way nothing takes place
// twice and nothing is lost.
var cuts = []struct {
	name   string
	action pgproxy.Action
	after  bool // it was done
}{
	{"before", pgproxy.CutBefore, false},
	{"after", pgproxy.CutAfter, true},
}

func forCuts(t *testing.T, test func(t *testing.T, action pgproxy.Action, after bool)) {
	for _, c := range cuts {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			test(t, c.action, c.after)
		})
	}
}

func (b *cutBed) start(opts ...engine.StartOption) engine.Run[int] {
	b.t.Helper()
	r, err := engine.Start(context.Background(), b.e, cutFlow, 0, opts...)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

var cutFlow = steps.Declare[int, int]("cut")

func TestCutAtEveryTransition(t *testing.T) {
	t.Parallel()
	forCuts(t, func(t *testing.T, action pgproxy.Action, _ bool) {
		var calls atomic.Int64
		b := newCutBed(t, chainOf(20, &calls))
		b.cut("Transition", cutOther, action)
		work(t, b.e)
		r, err := engine.Start(context.Background(), b.e, chain, 0)
		if err != nil {
			t.Fatal(err)
		}
		if out := b.finish(r); out != 20 || calls.Load() != 20 {
			t.Errorf("got %d from %d calls", out, calls.Load())
		}
		b.sequence(r, 20)
		b.fired(action, 20)
	})
}

// TestCutAtEveryTransactionalStep: the step's own writes are there once too.
// If COMMIT never came the body runs again, if only its answer was lost it does not.
func TestCutAtEveryTransactionalStep(t *testing.T) {
	t.Parallel()
	forCuts(t, func(t *testing.T, action pgproxy.Action, after bool) {
		const n = 10
		var calls atomic.Int64
		b := newCutBed(t, cutFlow.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
			for i := range n {
				in = steps.NewTx(fmt.Sprint("tx-", i), func(ctx context.Context, tx pgx.Tx, n int) (int, error) {
					calls.Add(1)
					_, err := tx.Exec(ctx, "INSERT INTO ledger VALUES ($1)", n)
					return n + 1, err
				}).Do(f, in)
			}
			return in
		}))
		b.ledger()
		b.cut("commit", unlessDone(after), action)
		work(t, b.e)
		r := b.start()
		if out := b.finish(r); out != n {
			t.Errorf("got %d", out)
		}
		want := int64(n)
		if !after {
			want *= 2
		}
		if calls.Load() != want {
			t.Errorf("%d calls, not %d", calls.Load(), want)
		}
		b.sequence(r, n)
		b.fired(action, n)
		b.ledgerIs(n)
	})
}

func (b *cutBed) ledger() {
	b.t.Helper()
	if _, err := b.direct.Exec(context.Background(), "CREATE TABLE ledger (n int)"); err != nil {
		b.t.Fatal(err)
	}
}

// ledgerIs: the numbers from 0 up to n, once each.
func (b *cutBed) ledgerIs(n int) {
	b.t.Helper()
	var rows, distinct, most int
	if err := b.direct.QueryRow(context.Background(), "SELECT count(*), count(DISTINCT n), max(n) FROM ledger").Scan(&rows, &distinct, &most); err != nil ||
		rows != n || distinct != n || most != n-1 {
		b.t.Errorf("%d rows with %d numbers up to %d, %v", rows, distinct, most, err)
	}
}

// TestCutAtEveryChunk cuts every Commit and every CommitTx of a cursor.
func TestCutAtEveryChunk(t *testing.T) {
	t.Parallel()
	const chunks = 10
	for _, in := range []struct {
		name, text string
		save       func(ctx context.Context, cur *steps.Cursor[int], n int, insert func(pgx.Tx) error) error
	}{
		{"Commit", "SaveCursor", func(ctx context.Context, cur *steps.Cursor[int], n int, _ func(pgx.Tx) error) error {
			return cur.Commit(ctx, n)
		}},
		{"CommitTx", "commit", func(ctx context.Context, cur *steps.Cursor[int], n int, insert func(pgx.Tx) error) error {
			return cur.CommitTx(ctx, n, insert)
		}},
	} {
		t.Run(in.name, func(t *testing.T) {
			t.Parallel()
			forCuts(t, func(t *testing.T, action pgproxy.Action, after bool) {
				var bodies atomic.Int64
				b := newCutBed(t, cutFlow.Of(steps.NewLong("long", func(ctx context.Context, _ int, cur *steps.Cursor[int]) (int, error) {
					bodies.Add(1)
					for cur.At() < chunks {
						at := cur.At()
						if err := in.save(ctx, cur, at+1, func(tx pgx.Tx) error {
							_, err := tx.Exec(ctx, "INSERT INTO ledger VALUES ($1)", at)
							return err
						}); err != nil {
							return 0, err
						}
						if cur.At() != at+1 {
							return 0, steps.Permanent("MOVED", fmt.Errorf("from %d to %d", at, cur.At()))
						}
					}
					return cur.At(), nil
				})))
				b.ledger()
				b.cut(in.text, unlessDone(after), action)
				work(t, b.e)
				r := b.start()
				if out := b.finish(r); out != chunks || bodies.Load() != 1 {
					t.Errorf("got %d from %d bodies", out, bodies.Load())
				}
				b.sequence(r, 1)
				b.fired(action, chunks)
				if in.name == "CommitTx" {
					b.ledgerIs(chunks)
				}
			})
		})
	}
}

// TestCutAtClaim: what was granted without the worker's knowledge is handed
// back at once, and costs no attempt.
func TestCutAtClaim(t *testing.T) {
	t.Parallel()
	forCuts(t, func(t *testing.T, action pgproxy.Action, after bool) {
		var calls atomic.Int64
		b := newCutBed(t, chainOf(3, &calls))
		r, err := engine.Start(context.Background(), b.e, chain, 0)
		if err != nil {
			t.Fatal(err)
		}
		b.cut("Claim", cutOnce, action)
		work(t, b.e)
		if out := b.finish(r); out != 3 || calls.Load() != 3 {
			t.Errorf("got %d from %d calls", out, calls.Load())
		}
		info, err := b.e.Get(context.Background(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		var events []string
		for _, h := range info.History {
			events = append(events, fmt.Sprintf("%s %d", h.Event, h.Attempt))
		}
		want := "[completed 1 completed 1 completed 1]"
		if after {
			want = "[handed_back 1 completed 1 completed 1 completed 1]"
		}
		if fmt.Sprint(events) != want {
			t.Errorf("got %v, not %s", events, want)
		}
		b.fired(action, 1)
	})
}

// TestCutAtBegin: the beginning of an effect is asked for again, and its body
// called once.
func TestCutAtBegin(t *testing.T) {
	t.Parallel()
	forCuts(t, func(t *testing.T, action pgproxy.Action, _ bool) {
		var calls, asked atomic.Int64
		b := newCutBed(t, cutFlow.Of(steps.New("effect", func(context.Context, int) (int, error) { calls.Add(1); return 1, nil }).
			LookUp(func(context.Context, int) (steps.Verdict[int], error) { asked.Add(1); return steps.Happened(2), nil }, time.Second)))
		b.cut("Begin", cutOnce, action)
		work(t, b.e)
		r := b.start()
		if out := b.finish(r); out != 1 || calls.Load() != 1 || asked.Load() != 0 {
			t.Errorf("got %d from %d calls and %d questions", out, calls.Load(), asked.Load())
		}
		b.sequence(r, 1)
		b.fired(action, 1)
	})
}

// TestCutAtStart: whoever starts again with the key gets the one run.
func TestCutAtStart(t *testing.T) {
	t.Parallel()
	forCuts(t, func(t *testing.T, action pgproxy.Action, after bool) {
		var calls atomic.Int64
		b := newCutBed(t, chainOf(1, &calls))
		b.cut("StartRuns", cutOnce, action)
		if _, err := engine.Start(context.Background(), b.e, chain, 0, engine.Key("k")); err == nil {
			t.Error("an answer that was lost is no success")
		}
		r, err := engine.Start(context.Background(), b.e, chain, 0, engine.Key("k"))
		if err != nil || r.Existed != after {
			t.Fatalf("existed %v, %v", r.Existed, err)
		}
		work(t, b.e)
		if out := b.finish(r); out != 1 || calls.Load() != 1 {
			t.Errorf("got %d from %d calls", out, calls.Load())
		}
		var runs int
		if err := b.direct.QueryRow(context.Background(), "SELECT count(*) FROM pawl.run").Scan(&runs); err != nil || runs != 1 {
			t.Errorf("%d runs, %v", runs, err)
		}
		b.fired(action, 1)
	})
}

// TestCutAndTakenBack: the write was lost, and before it is sent again the job is
// taken back. Its row's successor is another's: the result is evidence, no more.
func TestCutAndTakenBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := newCutBed(t, cutFlow.Of(steps.New("effect", func(context.Context, int) (int, error) { return 7, nil }).
		LookUp(func(context.Context, int) (steps.Verdict[int], error) { return steps.StillUnknown[int](time.Hour), nil }, time.Second)))
	var once sync.Once
	b.proxy.OnExecute(func(sql string) (a pgproxy.Action) {
		if strings.HasPrefix(sql, "-- name: Transition ") {
			once.Do(func() {
				a = pgproxy.CutBefore
				b.takeBack()
			})
		}
		return a
	})
	work(t, b.e)
	r := b.start()
	effUntil(t, "the result is kept as evidence", func() bool {
		var n int
		err := b.direct.QueryRow(ctx, "SELECT count(*) FROM pawl.evidence WHERE run_id = $1 AND output = '7'", r.ID).Scan(&n)
		return err == nil && n == 1
	})
	if info, err := b.e.Get(ctx, r.ID); err != nil || info.State != engine.Uncertain || info.History[0].Event != "uncertain" {
		t.Errorf("%+v, %v", info, err)
	}
	b.fired(pgproxy.CutBefore, 1)
}

// takeBack lets the one lease lapse and takes it back, in one transaction: no
// worker's own recovery may come in between.
func (b *cutBed) takeBack() {
	ctx := context.Background()
	if err := pgx.BeginFunc(ctx, b.direct, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE pawl.job SET expires_at = now() - interval '1 ms' WHERE state = 'running'"); err != nil {
			return err
		}
		rows, err := taken(db.New(tx).Recover(ctx, db.RecoverParams{Most: 10, Budget: 5, BaseMs: 1000, Request: rand.Int64()}))
		if err == nil && len(rows) != 1 {
			err = fmt.Errorf("%d leases were taken back", len(rows))
		}
		return err
	}); err != nil {
		b.t.Error(err)
	}
}
