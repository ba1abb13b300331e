package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// effKeys remembers which key each attempt had.
type effKeys struct {
	mu   sync.Mutex
	keys []string
}

func (k *effKeys) add(ctx context.Context) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys = append(k.keys, steps.IdempotencyKey(ctx))
	return len(k.keys)
}

func (k *effKeys) all() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.keys...)
}

// effLose does what a fail-over to a standby that lagged does to a run: no row
// of it is left, nor of its key.
func effLose(t *testing.T, pool *pgxpool.Pool, id string) {
	t.Helper()
	effExec(t, pool, "DELETE FROM pawl.cursor c USING pawl.job j WHERE c.job = j.id AND j.run_id = $1", id)
	for _, table := range []string{"job WHERE run_id", "history WHERE run_id", "evidence WHERE run_id", "audit WHERE run_id", "key WHERE run_id", "run WHERE id"} {
		effExec(t, pool, "DELETE FROM pawl."+table+" = $1", id)
	}
}

// A run that the database has lost is started again by its caller's key, and
// charges under the key that the provider remembers.
func TestEffectSurvivesLostRows(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	b := newEffBank(t)
	e := effEngine(t, pool, engine.Config{Workflows: effCharging(b)})
	work(t, e)
	for _, w := range []steps.Workflow[effOrder, string]{effByKey, effByLookUp} {
		o := effOrder{ID: "lost-" + w.Name()}
		r := effStart(t, e, w, o, engine.Key(o.ID))
		first := effSuccess(t, e, r)
		effLose(t, pool, r.ID)
		if _, err := e.Get(context.Background(), r.ID); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("the run is not lost: %v", err)
		}
		again := effStart(t, e, w, o, engine.Key(o.ID))
		if again.ID == r.ID || again.Existed {
			t.Errorf("%+v is no new run", again)
		}
		if out := effSuccess(t, e, again); out != first || len(b.entries(o.ID)) != 1 || b.sent(o.ID) != 2 {
			t.Errorf("%q, then %q; charged %v, asked %d times", first, out, b.entries(o.ID), b.sent(o.ID))
		}
	}
	// Without a key of the caller's nothing tells that it is the same run.
	o := effOrder{ID: "no-key"}
	for range 2 {
		effSuccess(t, e, effStart(t, e, effByKey, o))
	}
	if n := len(b.entries(o.ID)); n != 2 {
		t.Errorf("two runs without a key charged %d times", n)
	}
}

// A start that a person or a window allowed to use a key again is another
// charge.
func TestEffectReusedKeyChargesAnew(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := effPool(t, pgtest.Database(t))
	b := newEffBank(t)
	e := effEngine(t, pool, engine.Config{Workflows: effCharging(b)})
	work(t, e)
	o := effOrder{ID: "reused"}
	start := func(opts ...engine.StartOption) engine.Run[string] {
		t.Helper()
		r := effStart(t, e, effByKey, o, append(opts, engine.Key("k"))...)
		effSuccess(t, e, r)
		return r
	}
	first := start()
	if r := start(engine.ReuseAfter(time.Hour)); !r.Existed || r.ID != first.ID {
		t.Errorf("the window had not passed: %+v", r)
	}
	if err := e.ReleaseKey(ctx, effByKey.Name(), "k", effPerson); err != nil {
		t.Fatal(err)
	}
	second := start()
	if second.Existed || second.ID == first.ID {
		t.Errorf("a released key started %+v", second)
	}
	if r := start(); !r.Existed || r.ID != second.ID {
		t.Errorf("one release, two starts: %+v", r)
	}
	third := start(engine.ReuseAfter(0))
	if third.Existed {
		t.Errorf("the window had passed: %+v", third)
	}
	keys := map[string]bool{}
	for _, entry := range b.entries(o.ID) {
		keys[entry.Key] = true
	}
	if len(b.entries(o.ID)) != 3 || len(keys) != 3 {
		t.Errorf("three starts charged %v", b.entries(o.ID))
	}
	if found, err := engine.Find(ctx, e, effByKey, "k"); err != nil || found.ID != third.ID {
		t.Errorf("found %+v, %v", found, err)
	}
}

// A dead effect that is replayed is the same effect, under the same key. With
// a corrected input it is another, and the history shows which input that was.
func TestEffectReplayed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	var k effKeys
	w := steps.Declare[string, string]("replayed")
	e := effEngine(t, pgtest.Pool(t), engine.Config{Workflows: []steps.Definition{w.Of(steps.New("pay", func(ctx context.Context, in string) (string, error) {
		k.add(ctx)
		if in == "wrong" {
			return "", steps.Permanent("BAD_IBAN", nil)
		}
		return "paid to " + in, nil
	}, steps.Idempotent(steps.Forever)))}})
	work(t, e)
	r := effStart(t, e, w, "wrong")
	for n := range 2 {
		var failed *engine.FailedError
		if _, err := effResult(t, e, r); !errors.As(err, &failed) || failed.Code != "BAD_IBAN" || len(k.all()) != n+1 {
			t.Fatalf("%v after %d attempts", err, len(k.all()))
		}
		if n == 0 {
			if err := e.Replay(ctx, r.ID, engine.By{Actor: "bob", Reason: "the bank was closed"}); err != nil {
				t.Fatal(err)
			}
			effUntil(t, "the second attempt", func() bool { return effGet(t, e, r.ID).State == engine.Failed && len(k.all()) == 2 })
		}
	}
	if err := e.Replay(ctx, r.ID, effPerson, engine.WithInput("right")); err != nil {
		t.Fatal(err)
	}
	if out := effSuccess(t, e, r); out != "paid to right" {
		t.Errorf("got %q", out)
	}
	keys := k.all()
	if len(keys) != 3 || keys[0] != keys[1] || keys[1] == keys[2] {
		t.Errorf("the keys were %v", keys)
	}
	info := effGet(t, e, r.ID)
	rows := effRows(info, "replayed")
	if len(rows) != 2 || rows[0].Actor != "bob" || rows[0].Output != nil || string(rows[1].Output) != `"right"` || rows[1].Reason != effPerson.Reason {
		t.Errorf("the replays are recorded as %+v", rows)
	}
	if string(info.Input) != `"wrong"` {
		t.Errorf("the run's own input is %s now", info.Input)
	}
}

// A provider that may have forgotten the key is not asked to charge again.
func TestEffectKeyExpired(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	var k effKeys
	w := steps.Declare[int, string]("expiring")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("pay", func(ctx context.Context, _ int) (string, error) {
		if k.add(ctx) < 3 {
			return "", steps.RetryAfter(24*time.Hour, errors.New("come back tomorrow"))
		}
		return "paid", nil
	}, steps.Idempotent(time.Hour)))}})
	work(t, e)
	r := effStart(t, e, w, 1)
	waits := func(attempts int) func() bool {
		return func() bool { return effGet(t, e, r.ID).State == engine.Scheduled && len(k.all()) == attempts }
	}
	effUntil(t, "the first attempt", waits(1))
	effHurry(t, pool, r.ID) // within the hour it is sent again
	effUntil(t, "the second attempt", waits(2))
	effExec(t, pool, "UPDATE pawl.job SET effect_at = effect_at - interval '61 minutes'")
	effHurry(t, pool, r.ID)
	info := effState(t, e, r.ID, engine.Uncertain)
	if info.Code != "KEY_EXPIRED" || !info.DueAt.IsZero() || len(k.all()) != 2 {
		t.Errorf("%d attempts; %+v", len(k.all()), info)
	}
	if err := e.Resolve(context.Background(), r.ID, effPerson, engine.ItNeverHappened("their support says so")); err != nil {
		t.Fatal(err)
	}
	if out := effSuccess(t, e, r); out != "paid" {
		t.Errorf("got %q", out)
	}
	if keys := k.all(); len(keys) != 3 || keys[0] != keys[1] || keys[1] != keys[2] {
		t.Errorf("the keys were %v", keys)
	}
}

// An attempt whose input is not the first one's does not run: the key stands
// for another input, and somebody has changed a Map.
func TestEffectInputChanged(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	var mu sync.Mutex
	sent := map[int][]string{} // by what is added to the input
	find := func(context.Context, string) (steps.Verdict[string], error) {
		return steps.NeverHappened[string](), nil
	}
	names := []string{"changed-by-key", "changed-by-look-up", "changed-by-person"}
	build := func(add int) (defs []steps.Definition) {
		body := func(_ context.Context, in string) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			sent[add] = append(sent[add], in)
			return "", steps.RetryAfter(24*time.Hour, errors.New("definitely not yet"))
		}
		for i, name := range names {
			s := steps.New("pay", body, []steps.Option{steps.Idempotent(steps.Forever), effQuick, steps.Manual()}[i])
			if i == 1 {
				s = s.LookUp(find, time.Hour)
			}
			defs = append(defs, steps.Declare[string, string](name).Define(func(f *steps.Flow, in steps.Ref[string]) steps.Ref[string] {
				return s.Do(f, steps.Map(in, func(s string) string { return s + strings.Repeat("!", add) }))
			}))
		}
		return defs
	}
	old := effEngine(t, pool, engine.Config{Workflows: build(0)})
	stop := work(t, old)
	var runs []engine.Run[string]
	for _, name := range names {
		r := effStart(t, old, steps.Declare[string, string](name), "pay")
		effState(t, old, r.ID, engine.Scheduled)
		runs = append(runs, r)
	}
	stop()
	changed := effEngine(t, pool, engine.Config{Workflows: build(1)})
	work(t, changed)
	for i, want := range []engine.State{engine.Failed, engine.Uncertain, engine.Uncertain} {
		effHurry(t, pool, runs[i].ID)
		info := effState(t, changed, runs[i].ID, want)
		if info.Code != "INPUT_CHANGED" || want == engine.Uncertain && !info.DueAt.IsZero() {
			t.Errorf("%s: %+v", names[i], info)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(sent[0]) != 3 || len(sent[1]) != 0 {
		t.Errorf("sent %v", sent)
	}
}

// Where the outcome is unknown already, a look-up with another input would ask
// about something else.
func TestEffectInputChangedUnderQuestion(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	var asked atomic.Int64
	w := steps.Declare[string, string]("changed-under-question")
	build := func(add string) steps.Definition {
		return w.Define(func(f *steps.Flow, in steps.Ref[string]) steps.Ref[string] {
			return steps.New("pay", func(context.Context, string) (string, error) { return "", errors.New("no answer") }).
				LookUp(func(_ context.Context, in string) (steps.Verdict[string], error) {
					if in != "pay" {
						asked.Add(1)
					}
					return steps.StillUnknown[string](24 * time.Hour), nil
				}, time.Hour).Do(f, steps.Map(in, func(s string) string { return s + add }))
		})
	}
	old := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{build("")}})
	stop := work(t, old)
	r := effStart(t, old, w, "pay")
	effUntil(t, "the first question", func() bool { return len(effRows(effGet(t, old, r.ID), "unknown")) == 1 })
	stop()
	changed := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{build("!")}})
	work(t, changed)
	effExec(t, pool, "UPDATE pawl.job SET due_at = pawl.now() WHERE state = 'uncertain'")
	effUntil(t, "the change to be seen", func() bool { return effGet(t, changed, r.ID).Code == "INPUT_CHANGED" })
	if info := effState(t, changed, r.ID, engine.Uncertain); !info.DueAt.IsZero() || asked.Load() != 0 {
		t.Errorf("asked %d times about another input; %+v", asked.Load(), info)
	}
}
