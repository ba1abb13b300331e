package view

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/internal/pgtest"
)

// tailBed follows a history that the test writes, round by round.
type tailBed struct {
	t     *testing.T
	pool  *pgxpool.Pool
	run   uuid.UUID
	round chan struct{} // one is sent: the next round may begin
	ended chan []string // what it told
	told  []string
}

func newTailBed(t *testing.T, tail *Tail) *tailBed {
	pgtest.SkipDoctor(t) // a history that nobody lived
	b := &tailBed{t: t, pool: pgtest.Pool(t), round: make(chan struct{}), ended: make(chan []string)}
	if err := b.pool.QueryRow(t.Context(), "SELECT pawl.new_run_id(0::smallint, now())").Scan(&b.run); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	tail.Idle = func(ctx context.Context, _ time.Duration) bool {
		told := b.told
		b.told = nil
		select {
		case b.ended <- told:
		case <-ctx.Done():
		}
		select {
		case <-b.round:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() {
		done <- tail.Follow(ctx, b.pool, func(e Event) error { b.told = append(b.told, fmt.Sprint(e.Token)); return nil })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-b.ended
	return b
}

func (b *tailBed) begin() pgx.Tx {
	b.t.Helper()
	tx, err := b.pool.Begin(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	return tx
}

// insert writes a transition, as a worker does.
func (b *tailBed) insert(tx pgx.Tx, token int) {
	b.t.Helper()
	if _, err := tx.Exec(context.Background(), `INSERT INTO pawl.history (shard, run_id, job, token, ended_at, node, attempt, request, path, mode, from_state, to_state, event, writer)
		VALUES (0, $1, 1, $2, clock_timestamp(), 0, 1, 7, '', 'do', 'running', 'pending', 'retried', 'worker')`, b.run, token); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tailBed) commit(tx pgx.Tx) {
	b.t.Helper()
	if err := tx.Commit(context.Background()); err != nil {
		b.t.Fatal(err)
	}
}

// next is a round; it must tell these, in any order.
func (b *tailBed) next(what string, want ...string) {
	b.t.Helper()
	b.round <- struct{}{}
	got := <-b.ended
	slices.Sort(got)
	if !slices.Equal(got, want) {
		b.t.Errorf("%s: the round tells %v, not %v", what, got, want)
	}
}

// outOfOrder commits transitions in another order than they were written in.
func outOfOrder(t *testing.T, tail *Tail) {
	b := newTailBed(t, tail)
	b.next("nothing")
	long, a, c := b.begin(), b.begin(), b.begin()
	b.insert(long, 1)
	b.insert(a, 2)
	b.insert(c, 3)
	b.commit(c)
	b.next("the last was committed first", "3")
	b.next("nothing more")
	b.commit(a)
	b.next("an earlier one afterwards", "2")
	for token := 4; token < 8; token++ {
		x := b.begin()
		b.insert(x, token)
		b.commit(x)
		b.next("one after the other, beneath a long one", fmt.Sprint(token))
	}
	b.insert(long, 8)
	b.commit(long)
	b.next("the long one at last", "1", "8")
	b.next("and none of them again")
}

func TestTailOutOfOrder(t *testing.T) {
	t.Parallel()
	t.Run("short", func(t *testing.T) { t.Parallel(); outOfOrder(t, &Tail{}) })
	// Every transaction is a long one, and nothing is read twice for a clock's sake.
	t.Run("long", func(t *testing.T) { t.Parallel(); outOfOrder(t, &Tail{longest: time.Nanosecond}) })
}

// TestTailPages: more in a moment than one page, with one time for many.
func TestTailPages(t *testing.T) {
	t.Parallel()
	b := newTailBed(t, &Tail{})
	tx := b.begin()
	if _, err := tx.Exec(t.Context(), `INSERT INTO pawl.history (shard, run_id, job, token, ended_at, node, attempt, request, path, mode, from_state, to_state, event, writer)
		SELECT 0, $1, 1, i, now() + i / 3000 * interval '1 ms', 0, 1, 7, '', 'do', 'running', 'pending', 'retried', 'worker' FROM generate_series(1, 7000) i`, b.run); err != nil {
		t.Fatal(err)
	}
	b.commit(tx)
	b.round <- struct{}{}
	got := <-b.ended
	slices.Sort(got)
	if n := len(slices.Compact(slices.Clone(got))); len(got) != 7000 || n != 7000 {
		t.Errorf("%d told, %d different ones", len(got), n)
	}
	b.next("nothing again")
}

// TestTailPlan: what a round reads is found by time, whatever lies behind it.
func TestTailPlan(t *testing.T) {
	t.Parallel()
	pgtest.SkipDoctor(t)
	pool := pgtest.Pool(t)
	if _, err := pool.Exec(t.Context(), `INSERT INTO pawl.history (shard, run_id, job, token, ended_at, node, attempt, request, path, mode, from_state, to_state, event, writer)
		SELECT 0, (substr(pawl.first_run_id(now())::text, 1, 24) || lpad(to_hex(i), 12, '0'))::uuid, i, 1, now() - (300000 - i) * interval '20 ms', 0, 1, 7, '', 'do', 'running', 'pending', 'retried', 'worker' FROM generate_series(1, 300000) i`); err != nil {
		t.Fatal(err)
	}
	// As autovacuum does, once a minute.
	if _, err := pool.Exec(t.Context(), "VACUUM ANALYZE pawl.history"); err != nil {
		t.Fatal(err)
	}
	x := &explainer{t: t}
	var newest time.Time
	if err := pool.QueryRow(t.Context(), "SELECT max(ended_at) FROM pawl.history").Scan(&newest); err != nil {
		t.Fatal(err)
	}
	tail := &Tail{Since: newest.Add(-3 * time.Second), Idle: func(context.Context, time.Duration) bool { return false }}
	told := 0
	if err := tail.Follow(t.Context(), x.on(pool), func(Event) error { told++; return nil }); err != nil {
		t.Fatal(err)
	}
	if told != 151 {
		t.Errorf("%d told", told)
	}
	if plan := x.plans["TailAll"]; !strings.Contains(plan.text, "history_"+time.Now().UTC().Format("20060102")+"_ended_at_idx") {
		t.Errorf("not by time: %s", plan.text)
	}
	x.atMost(t, 20_000)
}
