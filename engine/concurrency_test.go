package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// Case 14: a recovery that acts on what it has read earlier. Its statement has
// its snapshot and is held up before it looks at the first row; meanwhile
// another one takes the job back and it is leased again. The first must leave it
// alone, though in its snapshot the new owner has no session at all.
func TestCase14(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"the same owner", "a new session"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			b := newFenceBed(t)
			b.holdUp()
			owner := b.owner()
			j := b.one(owner)
			b.exec("UPDATE pawl.job SET expires_at = clock_timestamp() WHERE id = $1", j.ID)

			release := b.hold()
			late := make(chan error, 1)
			var took int
			pid := make(chan uint32, 1)
			go func() {
				rows, err := b.recoverHeld(pid)
				took = len(rows)
				late <- err
			}()
			b.waits(<-pid)
			if rows, err := taken(b.q.Recover(context.Background(), db.RecoverParams{Most: 10, Budget: 5, BaseMs: 1000, Request: rand.Int64()})); err != nil || len(rows) != 1 {
				t.Fatal(rows, err)
			}
			if state == "a new session" {
				owner = b.owner()
			}
			again := b.claim(owner)
			if len(again) != 1 || again[0].Token != j.Token+2 {
				t.Fatalf("%+v", again)
			}
			before := b.rows(j.RunID)
			release()
			if err := <-late; err != nil || took != 0 {
				t.Errorf("it took %d back, %v", took, err)
			}
			if after := b.rows(j.RunID); after != before {
				t.Errorf("changed\n%s\nto\n%s", before, after)
			}
		})
	}
}

// holdUp makes pawl.now, by which recovery finds its candidates, wait for a lock
// in sessions that say so. Volatile, or the planner would call it for its estimates,
// and what is held up would have no snapshot yet.
func (b *fenceBed) holdUp() {
	b.exec(`CREATE OR REPLACE FUNCTION pawl.now() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$ BEGIN
		IF current_setting('test.held', true) = 'on' THEN PERFORM pg_advisory_xact_lock_shared(14); END IF;
		RETURN pg_catalog.now(); END $$`)
}

// hold takes the lock.
func (b *fenceBed) hold() (release func()) {
	tx, err := b.pool.Begin(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := tx.Exec(context.Background(), "SELECT pg_advisory_xact_lock(14)"); err != nil {
		b.t.Fatal(err)
	}
	return func() { _ = tx.Rollback(context.Background()) }
}

func (b *fenceBed) recoverHeld(pid chan<- uint32) ([]db.RecoverRow, error) {
	c, err := pgx.Connect(context.Background(), b.pool.Config().ConnString())
	if err != nil {
		close(pid)
		return nil, err
	}
	defer c.Close(context.Background())
	_, err = c.Exec(context.Background(), "SET test.held = 'on'")
	pid <- c.PgConn().PID()
	if err != nil {
		return nil, err
	}
	return taken(db.New(c).Recover(context.Background(), db.RecoverParams{Most: 10, Budget: 5, BaseMs: 1000, Request: rand.Int64()}))
}

// waits returns when the server process waits for the lock.
func (b *fenceBed) waits(pid uint32) {
	b.t.Helper()
	effUntil(b.t, "recovery is held up", func() bool {
		var held bool
		err := b.pool.QueryRow(context.Background(), "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND locktype = 'advisory' AND NOT granted)", int32(pid)).Scan(&held)
		return err == nil && held
	})
}

// Case 33: the rescuer itself is hit in the middle of its work. What it was
// about to take back is taken back, once, by the next.
func TestCase33(t *testing.T) {
	t.Parallel()
	t.Run("killed inside the statement", func(t *testing.T) {
		t.Parallel()
		b := newFenceBed(t)
		b.holdUp()
		j := b.one(b.owner())
		b.exec("UPDATE pawl.job SET expires_at = clock_timestamp() WHERE id = $1", j.ID)
		defer b.hold()()
		killed, pid := make(chan error, 1), make(chan uint32, 1)
		go func() { _, err := b.recoverHeld(pid); killed <- err }()
		p := <-pid
		b.waits(p)
		b.exec("SELECT pg_terminate_backend($1)", int32(p))
		if err := <-killed; err == nil {
			t.Error("it was not killed")
		}
		if rows, err := taken(b.q.Recover(context.Background(), db.RecoverParams{Most: 10, Budget: 5, BaseMs: 1000, Request: rand.Int64()})); err != nil || len(rows) != 1 {
			t.Errorf("the next took back %v, %v", rows, err)
		}
	})
	for _, text := range []string{"Recover", "CloseLapsed"} {
		t.Run("cut at "+text, func(t *testing.T) {
			t.Parallel()
			forCuts(t, func(t *testing.T, action pgproxy.Action, _ bool) {
				var calls atomic.Int64
				b := newCutBed(t, chainOf(2, &calls))
				r, err := engine.Start(context.Background(), b.e, chain, 0)
				if err != nil {
					t.Fatal(err)
				}
				// A worker that was killed holds it; its session has lapsed.
				if _, err := b.direct.Exec(context.Background(), `WITH s AS (
						INSERT INTO pawl.session VALUES (gen_random_uuid(), 'killed', '{}', '{}', now(), now()) RETURNING id)
					UPDATE pawl.job SET state = 'running', owner = s.id, token = 1, attempt = 1, granted_at = now(),
						expires_at = now() + interval '10 minutes', deadline_at = now() + interval '10 minutes' FROM s`); err != nil {
					t.Fatal(err)
				}
				b.cut(text, cutOnce, action)
				work(t, b.e)
				if out := b.finish(r); out != 2 || calls.Load() != 2 {
					t.Errorf("got %d from %d calls", out, calls.Load())
				}
				info, err := b.e.Get(context.Background(), r.ID)
				if err != nil || len(info.History) != 3 || info.History[0].Event != "lapsed" || info.History[1].Attempt != 2 {
					t.Errorf("%+v, %v", info.History, err)
				}
				b.fired(action, 1)
			})
		})
	}
}

// Case 41: attempt 1, whose lease was lost long ago, comes back with its
// result when attempt 2 has settled the matter. Nothing of it counts.
func TestCase41(t *testing.T) {
	t.Parallel()
	ends := []struct {
		name  string
		err   error
		state engine.State
	}{
		{"complete", nil, engine.Succeeded},
		{"fail", steps.Permanent("NO", nil), engine.Failed},
		{"snooze", steps.Snooze(time.Hour), engine.Scheduled},
	}
	for _, late := range ends {
		for _, final := range ends {
			t.Run(late.name+" after "+final.name, func(t *testing.T) {
				t.Parallel()
				oldAttempt(t, late.err, final.err, final.state)
			})
		}
	}
}

func oldAttempt(t *testing.T, late, final error, want engine.State) {
	ctx := context.Background()
	b := &fenceBed{t: t, pool: pgtest.Pool(t)}
	flow := steps.Declare[int, int]("old-attempt")
	held, release := make(chan struct{}), make(chan struct{})
	build := func(slots int, session time.Duration, fn func() error) *engine.Engine {
		e, err := engine.New(ctx, b.pool, engine.Config{NoListen: true, Slots: slots, Session: session, Workflows: []steps.Definition{
			flow.Of(steps.New("step", func(context.Context, int) (int, error) { return 1, fn() }))}})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	first := build(1, time.Hour, func() error { // its only slot is taken: attempt 2 is the other's
		close(held)
		<-release // whatever its context says
		return late
	})
	r, err := engine.Start(ctx, first, flow, 0)
	if err != nil {
		t.Fatal(err)
	}
	stop := work(t, first)
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free) // before the worker is waited for
	select {
	case <-held:
	case <-time.After(50 * time.Second):
		t.Fatal("attempt 1 did not begin")
	}
	var runs atomic.Int64
	second := build(10, 3*time.Second, func() error { runs.Add(1); return final })
	b.exec("UPDATE pawl.job SET expires_at = clock_timestamp()")
	stopSecond := work(t, second)
	effUntil(t, "attempt 2 has settled it", func() bool {
		info, err := second.Get(ctx, r.ID)
		return err == nil && info.State == want && runs.Load() == 1
	})
	stopSecond()
	before := b.rows(uuid.MustParse(r.ID))
	free()
	stop()
	if after := b.rows(uuid.MustParse(r.ID)); after != before {
		t.Errorf("changed\n%s\nto\n%s", before, after)
	}
}

// Case 43: every verb against every other on the same runs, in both orders:
// no deadlock, and nothing that can't be.
func TestCase43(t *testing.T) {
	t.Parallel()
	b := newFenceBed(t)
	for i, one := range mixedVerbs {
		for _, other := range mixedVerbs[i:] {
			for _, backwards := range []bool{false, true} {
				m := b.mixed()
				var all sync.WaitGroup
				start := make(chan struct{})
				all.Go(func() {
					<-start
					if err := one.do(m, false); err != nil { // a deadlock's, 40P01, above all
						t.Errorf("%s against %s: %v", one.name, other.name, err)
					}
				})
				all.Go(func() {
					<-start
					if err := other.do(m, backwards); err != nil {
						t.Errorf("%s against %s: %v", other.name, one.name, err)
					}
				})
				close(start)
				all.Wait()
				if t.Failed() {
					return
				}
			}
		}
		if vs, err := b.e.Doctor(context.Background()); err != nil || len(vs) != 0 {
			t.Fatalf("after %s against the others: %v, %v", one.name, vs, err)
		}
	}
	var deadlocks int
	if err := errors.Join(mixedFlush(b.pool), b.pool.QueryRow(context.Background(),
		"SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&deadlocks)); err != nil || deadlocks != 0 {
		t.Errorf("the server counted %d deadlocks, %v", deadlocks, err)
	}
}

// mixedFlush makes all connections tell what they have counted.
func mixedFlush(pool *pgxpool.Pool) error {
	_, err := pool.Exec(context.Background(), "SELECT pg_stat_force_next_flush()")
	return err
}
