package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// What an old run does after its first step.
var aged = steps.Declare[string, string]("aged")

// retentionBed is a database whose runs began days ago.
type retentionBed struct {
	*testing.T
	pool *pgxpool.Pool
	e    *engine.Engine
	runs map[string]engine.Run[string]
	well bool // the dead one may succeed
}

// newRetentionBed starts a run of each name, three days ago, and works on them
// until each stands where its name says.
func newRetentionBed(t *testing.T, names ...string) *retentionBed {
	b := &retentionBed{T: t, pool: pgtest.Pool(t), runs: map[string]engine.Run[string]{}}
	b.daysAgo(3)
	effExec(t, b.pool, "SELECT pawl.make_partitions(3)")
	first := steps.New("first", func(_ context.Context, s string) (string, error) { return s, nil })
	second := steps.New("second", func(_ context.Context, s string) (string, error) {
		switch {
		case b.well:
		case strings.HasPrefix(s, "dead"):
			return "", steps.Permanent("BROKEN", errors.New("broken"))
		case strings.HasPrefix(s, "living"):
			return "", steps.Snooze(30 * 24 * time.Hour)
		case strings.HasPrefix(s, "uncertain"):
			return "", steps.Uncertain(errors.New("perhaps"))
		}
		return s + "!", nil
	}, steps.Manual())
	b.e = effEngine(t, b.pool, engine.Config{Workflows: []steps.Definition{aged.Define(func(f *steps.Flow, in steps.Ref[string]) steps.Ref[string] {
		return second.Do(f, first.Do(f, in))
	})}})
	for _, name := range names {
		b.runs[name] = effStart(t, b.e, aged, name, engine.Key(name))
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.e.Work(ctx) }()
	for name, r := range b.runs {
		switch want, _, _ := strings.Cut(name, " "); want {
		case "dead":
			effState(t, b.e, r.ID, engine.Failed)
		case "living":
			effUntil(t, name+" sleeps", func() bool { return len(effRows(effGet(t, b.e, r.ID), "snoozed")) == 1 })
		case "uncertain":
			effState(t, b.e, r.ID, engine.Uncertain)
		default:
			effState(t, b.e, r.ID, engine.Succeeded)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	b.daysAgo(0)
	effExec(t, b.pool, "SELECT pawl.make_partitions(3)")
	return b
}

func (b *retentionBed) daysAgo(n int) {
	effExec(b, b.pool, fmt.Sprintf(`CREATE OR REPLACE FUNCTION pawl.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp() - interval ''%d days'''`, n))
	effExec(b, b.pool, fmt.Sprintf(`CREATE OR REPLACE FUNCTION pawl.now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT pg_catalog.now() - interval ''%d days'''`, n))
}

func (b *retentionBed) keep(d string) {
	effExec(b, b.pool, "SELECT pawl.set_retention($1::text::interval, 'a person', 'a reason')", d)
}

func (b *retentionBed) gone(name string) bool {
	_, err := b.e.Get(b.Context(), b.runs[name].ID)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		b.Fatal(err)
	}
	return err != nil
}

// history is the number of a run's history rows.
func (b *retentionBed) history(name string) int {
	return effScan[int](b, b.pool, "SELECT count(*)::int FROM pawl.history WHERE run_id = $1::text::uuid", b.runs[name].ID)
}

// day is the name of the partition of the day on which the runs began.
func (b *retentionBed) day() (name string, there bool) {
	id := strings.ReplaceAll(b.runs["succeeded 1"].ID, "-", "")
	name = "history_" + effScan[time.Time](b, b.pool, `SELECT to_timestamp(('x' || $1)::bit(48)::bigint / 1000.0)`, id[:12]).UTC().Format("20060102")
	return name, effScan[bool](b, b.pool, "SELECT to_regclass('pawl.' || $1) IS NOT NULL", name)
}

// TestRetentionWithoutRule: nothing is deleted, however old.
func TestRetentionWithoutRule(t *testing.T) {
	t.Parallel()
	b := newRetentionBed(t, "succeeded 1")
	if next := b.e.Retire(t.Context()); next < time.Minute {
		t.Errorf("again in %v", next)
	}
	effScan[int](t, b.pool, "SELECT deleted FROM pawl.retire_runs(0::smallint, '00000000-0000-0000-0000-000000000000', 1000)")
	if part := effScan[*string](t, b.pool, "SELECT pawl.retire_partition()"); part != nil {
		t.Errorf("%s was touched", *part)
	}
	if b.gone("succeeded 1") || b.history("succeeded 1") == 0 {
		t.Error("it was deleted")
	}
	b.keep("10 days")
	b.e.Retire(t.Context())
	if b.gone("succeeded 1") || b.history("succeeded 1") == 0 {
		t.Error("it was deleted before its time")
	}
}

// TestRetentionDropsDays: a day whose runs have all ended long enough ago goes
// as a whole; keys stay, and say what they said.
func TestRetentionDropsDays(t *testing.T) {
	t.Parallel()
	b := newRetentionBed(t, "succeeded 1", "succeeded 2", "succeeded 3", "succeeded 4")
	effExec(t, b.pool, `INSERT INTO pawl.evidence (shard, run_id, job, token, attempt, node, path, owner, came_at)
		SELECT shard, id, 1, 1, 1, 0, '', gen_random_uuid(), now() FROM pawl.run`)
	b.keep("2 days")
	day, there := b.day()
	if !there {
		t.Fatal("there is no " + day)
	}
	b.e.Retire(t.Context())
	if _, there := b.day(); there || !b.gone("succeeded 1") || effScan[int](t, b.pool, "SELECT count(*)::int FROM pawl.history") != 0 {
		t.Errorf("%s is there: %v", day, there)
	}
	if n := effScan[int](t, b.pool, "SELECT count(*)::int FROM pawl.evidence"); n != 0 {
		t.Errorf("%d rows of evidence are left", n)
	}
	if n := effScan[int](t, b.pool, "SELECT count(*)::int FROM pawl.session"); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	again := func(name string, opts ...engine.StartOption) string {
		t.Helper()
		return effStart(t, b.e, aged, name, append(opts, engine.Key(name))...).ID
	}
	if again("succeeded 1") != b.runs["succeeded 1"].ID {
		t.Error("a key that is never used again started another run")
	}
	if again("succeeded 1", engine.ReuseAfter(20*24*time.Hour)) != b.runs["succeeded 1"].ID {
		t.Error("a key was used again before its time")
	}
	if again("succeeded 2", engine.ReuseAfter(time.Hour)) == b.runs["succeeded 2"].ID {
		t.Error("a key that may be used again after an hour was not")
	}
	if err := b.e.ReleaseKey(t.Context(), aged.Name(), "succeeded 3", effPerson); err != nil {
		t.Fatal(err)
	}
	id := again("succeeded 3")
	if id == b.runs["succeeded 3"].ID {
		t.Error("a key that a person released did not start another run")
	}
	if g := effScan[int](t, b.pool, "SELECT generation FROM pawl.run WHERE id = $1::text::uuid", id); g != 2 {
		t.Errorf("it is start %d of its key", g)
	}
}

// TestRetentionKeepsWhatIsNeeded: dead, uncertain and living runs stay with all
// they have recorded, in a partition without the others, and go on from there.
func TestRetentionKeepsWhatIsNeeded(t *testing.T) {
	t.Parallel()
	b := newRetentionBed(t, "succeeded 1", "dead 1", "living 1", "uncertain 1", "succeeded 2")
	before := map[string]int{}
	for name := range b.runs {
		before[name] = b.history(name)
	}
	b.keep("1 day")
	// A sweep that was interrupted between runs and history: the next one takes it up.
	effExec(t, b.pool, "SELECT pawl.retire_runs(0::smallint, '00000000-0000-0000-0000-000000000000', 1000)")
	b.e.Retire(t.Context())
	day, there := b.day()
	if !there {
		t.Fatalf("%s is gone", day)
	}
	for name, rows := range before {
		if strings.HasPrefix(name, "succeeded") {
			rows = 0
		}
		if n := b.history(name); n != rows || b.gone(name) != (rows == 0) {
			t.Errorf("%s: %d of %d history rows, gone: %v", name, n, rows, b.gone(name))
		}
	}
	if part := effScan[*string](t, b.pool, "SELECT pawl.retire_partition()"); part != nil {
		t.Errorf("%s was written anew for nothing", *part)
	}
	b.well = true
	if err := b.e.Replay(t.Context(), b.runs["dead 1"].ID, effPerson); err != nil {
		t.Fatal(err)
	}
	effExec(t, b.pool, "UPDATE pawl.job SET due_at = pawl.clock() WHERE state = 'pending'")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.e.Work(ctx) }()
	for _, name := range []string{"dead 1", "living 1"} {
		if out := effSuccess(t, b.e, b.runs[name]); out != name+"!" {
			t.Errorf("%s: %q", name, out)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	b.e.Retire(t.Context())
	if b.gone("living 1") || b.history("living 1") == 0 {
		t.Error("a run that ended just now was deleted for having begun long ago")
	}
}

// TestRetentionWaitsForNobody: what reads the history is neither disturbed nor
// waited for; the day goes another time.
func TestRetentionWaitsForNobody(t *testing.T) {
	t.Parallel()
	b := newRetentionBed(t, "succeeded 1")
	b.keep("1 day")
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "SELECT FROM pawl.history"); err != nil {
		t.Fatal(err)
	}
	if next := b.e.Retire(t.Context()); next < time.Second || next > 10*time.Minute {
		t.Errorf("again in %v", next)
	}
	if day, there := b.day(); !there {
		t.Errorf("%s was dropped under a reader", day)
	}
	soon, stop := context.WithTimeout(t.Context(), 8*time.Second)
	defer stop()
	if _, err := b.pool.Exec(soon, "SELECT pawl.retire_partition()"); err == nil || !strings.Contains(err.Error(), "55P03") {
		t.Errorf("it waits in the way of others: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.e.Retire(t.Context())
	if day, there := b.day(); there {
		t.Errorf("%s is still there", day)
	}
}

// TestRetentionRule: who sets it says who he is; a moment is no rule.
func TestRetentionRule(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, bad := range []string{"'1 hour', 'a', 'b'", "'-1 days', 'a', 'b'", "'3 days', '', 'b'", "'3 days', 'a', NULL"} {
		if _, err := pool.Exec(t.Context(), "SELECT pawl.set_retention("+bad+")"); err == nil || !strings.Contains(err.Error(), "PW004") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	effExec(t, pool, "SELECT pawl.set_retention('30 days', 'a', 'b')")
	effExec(t, pool, "SELECT pawl.set_retention(NULL, 'c', 'd')")
	acts := effScan[[]string](t, pool, "SELECT array_agg(actor || ' ' || reason ORDER BY id) FROM pawl.audit WHERE act = 'retention'")
	if fmt.Sprint(acts) != "[a 30 days: b c for ever: d]" || effScan[bool](t, pool, "SELECT keep IS NOT NULL FROM pawl.meta") {
		t.Errorf("%q", acts)
	}
}
