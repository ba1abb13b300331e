package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// One row that somebody holds and one value that PostgreSQL refuses, among a
// hundred: they delay and fail themselves, and the rest goes on.

const batchOf = 100

var batchFlow = steps.Declare[int, int]("batch")

// lock holds the job's row of a run, as a user's transaction might.
func (b *fenceBed) lock(run string) (release func()) {
	b.t.Helper()
	tx, err := b.pool.Begin(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	release = sync.OnceFunc(func() { _ = tx.Rollback(context.Background()) })
	b.t.Cleanup(release)
	if tag, err := tx.Exec(context.Background(), "SELECT FROM pawl.job WHERE run_id = $1 FOR UPDATE", run); err != nil || tag.RowsAffected() != 1 {
		b.t.Fatal(tag, err)
	}
	return release
}

// batchLog keeps what the engine logs.
type batchLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *batchLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *batchLog) says(what string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), what)
}

// batch starts a hundred runs of a step and a worker with a slot for each.
func (b *fenceBed) batch(config engine.Config, opts ...engine.StartOption) (*engine.Engine, []engine.Run[int]) {
	b.t.Helper()
	e, err := engine.New(context.Background(), b.pool, config)
	if err != nil {
		b.t.Fatal(err)
	}
	ins := make([]int, batchOf)
	for i := range ins {
		ins[i] = i
	}
	runs, err := engine.StartMany(context.Background(), e, batchFlow, ins, opts...)
	if err != nil {
		b.t.Fatal(err)
	}
	return e, runs
}

func batchState(t *testing.T, e *engine.Engine, run engine.Run[int]) engine.RunInfo {
	t.Helper()
	info, err := e.Get(context.Background(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// TestBatchOfCommitter: a hundred steps end at the same moment. The output of
// one is refused, which kills its run alone and says why; the row of another is
// held, which delays it alone.
func TestBatchOfCommitter(t *testing.T) {
	t.Parallel()
	b := &fenceBed{t: t, pool: pgtest.Pool(t)}
	// No output is refused by the types; a user's own constraint may do it.
	b.exec(`ALTER TABLE pawl.history ADD CHECK (output <> '"cursed"')`)
	const bad, held = 13, 42
	var ready sync.WaitGroup
	ready.Add(batchOf)
	end := make(chan struct{})
	flow := steps.Declare[int, any]("cursed")
	e, err := engine.New(context.Background(), b.pool, engine.Config{Workflows: []steps.Definition{flow.Of(steps.New("step", func(_ context.Context, n int) (any, error) {
		ready.Done()
		<-end
		if n == bad {
			return "cursed", nil
		}
		return n, nil
	}))}, Slots: batchOf})
	if err != nil {
		t.Fatal(err)
	}
	ins := make([]int, batchOf)
	for i := range ins {
		ins[i] = i
	}
	runs, err := engine.StartMany(context.Background(), e, flow, ins)
	if err != nil {
		t.Fatal(err)
	}
	work(t, e)
	ready.Wait()
	release := b.lock(runs[held].ID)
	close(end)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for i, r := range runs {
		var failed *engine.FailedError
		switch _, err := waitUnless(ctx, i == held, r); {
		case i == bad && (!errors.As(err, &failed) || failed.Code != "BAD_VALUE"):
			t.Errorf("the cursed one: %v", err)
		case i != bad && err != nil:
			t.Errorf("run %d: %v", i, err)
		}
	}
	if info, err := e.Get(ctx, runs[held].ID); err != nil || info.State != engine.Running {
		t.Errorf("the one whose row is held is %s, %v", info.State, err)
	}
	release()
	if _, err := runs[held].Wait(ctx); err != nil {
		t.Error(err)
	}
}

func waitUnless[O any](ctx context.Context, not bool, r engine.Run[O]) (out O, err error) {
	if not {
		return out, nil
	}
	return r.Wait(ctx)
}

// TestBatchOfBegins: the same for the beginnings of effects. The cursed one
// does not begin; it lapses, and is tried again.
func TestBatchOfBegins(t *testing.T) {
	t.Parallel()
	b := &fenceBed{t: t, pool: pgtest.Pool(t)}
	b.exec("CREATE TABLE cursed (run_id uuid)")
	b.exec(`CREATE FUNCTION is_cursed(uuid) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT EXISTS (SELECT FROM public.cursed WHERE run_id = $1)'`)
	b.exec("ALTER TABLE pawl.job ADD CHECK (NOT (begun AND public.is_cursed(run_id)))")
	const bad, held = 13, 42
	var began [batchOf]atomic.Bool
	e, runs := b.batch(engine.Config{Slots: batchOf, Drain: time.Second, Workflows: []steps.Definition{batchFlow.Of(
		steps.New("effect", func(_ context.Context, n int) (int, error) { began[n].Store(true); return n, nil }, steps.Manual()))}}, engine.After(time.Hour))
	b.exec("INSERT INTO cursed VALUES ($1)", runs[bad].ID)
	release := func() {}
	// The row is held from just before its beginning: once it is leased.
	b.exec("UPDATE pawl.job SET due_at = now()")
	claimed := make(chan struct{})
	go func() {
		defer close(claimed)
		release = b.lockOnceLeased(runs[held].ID)
	}()
	work(t, e)
	<-claimed
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for i, r := range runs {
		if _, err := waitUnless(ctx, i == held || i == bad, r); err != nil {
			t.Errorf("run %d: %v", i, err)
		}
	}
	release()
	if _, err := runs[held].Wait(ctx); err != nil {
		t.Error(err)
	}
	if began[bad].Load() || batchState(t, e, runs[bad]).State == engine.Succeeded {
		t.Error("the body of the cursed one was called")
	}
}

// lockOnceLeased takes the row as soon as it can be had; it may come too
// late, when the step is done, and then it holds nothing up.
func (b *fenceBed) lockOnceLeased(run string) (release func()) {
	tx, err := b.pool.Begin(context.Background())
	if err != nil {
		b.t.Error(err)
		return func() {}
	}
	release = sync.OnceFunc(func() { _ = tx.Rollback(context.Background()) })
	b.t.Cleanup(release)
	for range 10_000 {
		var n int
		err := tx.QueryRow(context.Background(), "SELECT 1 FROM pawl.job WHERE run_id = $1 AND state = 'running' FOR UPDATE", run).Scan(&n)
		if err == nil || !errors.Is(err, pgx.ErrNoRows) || batchEnded(tx, run) {
			break
		}
	}
	return release
}

func batchEnded(tx pgx.Tx, run string) bool {
	var ended bool
	err := tx.QueryRow(context.Background(), "SELECT outcome IS NOT NULL FROM pawl.run WHERE id = $1", run).Scan(&ended)
	return err != nil || ended
}

// TestBatchOfKeeper: a hundred leases are renewed; one can't be, because a
// value is refused, another not while its row is held. The others live past
// their first lease, and the held one as well if it is let go in time.
func TestBatchOfKeeper(t *testing.T) {
	t.Parallel()
	b := &fenceBed{t: t, pool: pgtest.Pool(t)}
	b.exec("CREATE TABLE cursed (run_id uuid, most timestamptz)")
	b.exec(`CREATE FUNCTION is_cursed(uuid, timestamptz) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT EXISTS (SELECT FROM public.cursed WHERE run_id = $1 AND $2 > most)'`)
	b.exec("ALTER TABLE pawl.job ADD CHECK (expires_at IS NULL OR NOT public.is_cursed(run_id, expires_at))")
	const bad, held = 13, 42
	end := make(chan struct{})
	var ready sync.WaitGroup
	ready.Add(batchOf)
	var lost [batchOf]atomic.Bool
	e, runs := b.batch(engine.Config{Slots: batchOf, Drain: time.Second, Session: time.Hour, NoListen: true, Workflows: []steps.Definition{batchFlow.Of(
		steps.New("silent", func(ctx context.Context, n int) (int, error) {
			ready.Done()
			for {
				if err := steps.Acknowledge(ctx); err != nil {
					lost[n].Store(true)
					return 0, err
				}
				select {
				case <-end:
					return n, nil
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond): // the pace of what it acknowledges
				}
			}
		}, steps.Lease(20*time.Second), steps.Heartbeat(time.Second)))}})
	work(t, e)
	ready.Wait()
	release := b.lock(runs[held].ID)
	b.exec("INSERT INTO cursed SELECT run_id, expires_at FROM pawl.job WHERE run_id = $1", runs[bad].ID)
	first := map[string]time.Time{}
	read := func() map[string]time.Time {
		rows, err := b.pool.Query(context.Background(), "SELECT run_id::text, expires_at FROM pawl.job WHERE state = 'running'")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		at := map[string]time.Time{}
		for rows.Next() {
			var id string
			var when time.Time
			if err := rows.Scan(&id, &when); err != nil {
				t.Fatal(err)
			}
			at[id] = when
		}
		return at
	}
	first = read()
	effUntil(t, "all the others are renewed", func() bool {
		n := 0
		for id, when := range read() {
			if when.After(first[id]) {
				n++
			}
		}
		return n == batchOf-2
	})
	release()
	effUntil(t, "the one that was held is renewed", func() bool {
		return read()[runs[held].ID].After(first[runs[held].ID])
	})
	if at := read()[runs[bad].ID]; at.After(first[runs[bad].ID]) {
		t.Errorf("the cursed one was renewed to %v", at)
	}
	close(end)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for i, r := range runs {
		if _, err := waitUnless(ctx, i == bad, r); err != nil || lost[i].Load() && i != bad {
			t.Errorf("run %d: %v, lost %v", i, err, lost[i].Load())
		}
	}
}

// TestBatchOfRecovery: a hundred leases have expired. One can't be written,
// since the history has no place for its run (it was started on a day for which
// nobody made a partition), one is held. The others are taken back at once.
func TestBatchOfRecovery(t *testing.T) {
	t.Parallel()
	b := newFenceBed(t)
	const bad, held = 13, 42
	b.start(batchOf)
	jobs := b.claim(b.owner())
	old := uuid.MustParse("01000000-0000-7000-8000-000000000001") // of a day in 2004
	b.exec("UPDATE pawl.run SET id = $2 WHERE id = $1", jobs[bad].RunID, old)
	b.exec("UPDATE pawl.job SET run_id = $2, expires_at = clock_timestamp() WHERE run_id = $1", jobs[bad].RunID, old)
	b.exec("UPDATE pawl.job SET expires_at = clock_timestamp()")
	release := b.lock(jobs[held].RunID.String())
	var log batchLog
	e, err := engine.New(context.Background(), b.pool, engine.Config{NoListen: true, Session: 3 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Workflows: []steps.Definition{fenceFlow.Of(steps.New("only", func(_ context.Context, n int) (int, error) { return n + 1, nil }))}})
	if err != nil {
		t.Fatal(err)
	}
	work(t, e)
	ended := func(n int) func() bool {
		return func() bool {
			var done int
			err := b.pool.QueryRow(context.Background(), "SELECT count(*) FROM pawl.run WHERE outcome = 'succeeded'").Scan(&done)
			return err == nil && done == n
		}
	}
	effUntil(t, "the others have gone on", ended(batchOf-2))
	release()
	effUntil(t, "the one that was held has gone on", ended(batchOf-1))
	effUntil(t, "the log names the one that can't be taken back", func() bool { return log.says(fmt.Sprint("job=", jobs[bad].ID)) })
	var state string
	if err := b.pool.QueryRow(context.Background(), "SELECT state FROM pawl.job WHERE run_id = $1", old).Scan(&state); err != nil || state != "running" {
		t.Errorf("it is %s, %v", state, err)
	}
	// When there is a place for it, it goes on too.
	b.exec("CREATE TABLE pawl.history_2004 PARTITION OF pawl.history FOR VALUES FROM ('00000000-0000-0000-0000-000000000000') TO ('01800000-0000-0000-0000-000000000000')")
	effUntil(t, "the last has gone on", ended(batchOf))
}

// TestBatchOfStatements: the statements themselves answer each item: what is
// held is busy, and what is not its own is lost, while the rest is done.
func TestBatchOfStatements(t *testing.T) {
	t.Parallel()
	b := newFenceBed(t)
	const held, lost = 42, 77
	for _, verb := range []string{"renew", "begin", "transition"} {
		b.start(batchOf)
		owner := b.owner()
		jobs := b.claim(owner)
		b.exec("UPDATE pawl.job SET expires_at = clock_timestamp() WHERE id = $1", jobs[lost].ID)
		release := b.lock(jobs[held].RunID.String())
		var ids, tokens, terms []int64
		var yes []bool
		var retry []string
		var none [][]byte
		for _, j := range jobs {
			ids, tokens, terms, yes, retry, none = append(ids, j.ID), append(tokens, j.Token), append(terms, 60_000), append(yes, false), append(retry, "retry"), append(none, nil)
		}
		got := map[int64]string{}
		ctx := context.Background()
		switch verb {
		case "renew":
			rows, err := b.q.Renew(ctx, db.RenewParams{Ids: ids, Tokens: tokens, LeaseMs: terms, Owner: owner})
			for _, r := range rows {
				got[*r.ID] = *r.Verdict
			}
			if err != nil {
				t.Fatal(err)
			}
		case "begin":
			rows, err := b.q.Begin(ctx, db.BeginParams{Ids: ids, Tokens: tokens, LeaseMs: terms, RuntimeMs: terms, Begun: yes, AtExpiry: retry, EffectKeys: none, EffectHashes: none, Owner: owner})
			for _, r := range rows {
				got[*r.ID] = *r.Verdict
			}
			if err != nil {
				t.Fatal(err)
			}
		case "transition":
			rows, err := b.q.Transition(ctx, fenceEnds[2].transition(owner, jobs...))
			for _, r := range rows {
				got[*r.ID] = *r.Verdict
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for i, j := range jobs {
			want := "done"
			if i == held {
				want = "busy"
			} else if i == lost {
				want = "lost"
			}
			if got[j.ID] != want {
				t.Errorf("%s: item %d is %q, not %q", verb, i, got[j.ID], want)
			}
		}
		release()
	}
}
