package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// Settings that make no sense are refused when they are made.
func TestLimitsOfConfig(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	ok := limited.Of(steps.New("step", func(_ context.Context, s string) (string, error) { return s, nil }))
	for _, c := range []engine.Config{{Slots: -1}, {Slots: 100_001}, {Session: -time.Second}, {Session: 499 * time.Millisecond}, {Drain: -1}, {MaxPayload: -1}, {MaxPayload: 1 << 30},
		{Workflows: []steps.Definition{ok, ok}}, {Workflows: []steps.Definition{{}}}} {
		if _, err := engine.New(ctx, pool, c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
	if _, err := engine.New(ctx, nil, engine.Config{}); err == nil {
		t.Error("no pool was taken")
	}
	if err := engine.Migrate(ctx, nil); err == nil {
		t.Error("no pool was migrated")
	}
	for i, o := range []steps.Option{steps.Lease(0), steps.Lease(-time.Second), steps.Lease(60), steps.MaxRuntime(0), steps.MaxRuntime(-1), steps.Heartbeat(0), steps.Idempotent(0), steps.Idempotent(-1),
		steps.Retry{Attempts: -1}, steps.Retry{Delay: -1}, steps.Retry{MaxDelay: -time.Second}, steps.Retry{Within: -1}, steps.RetryUnknown{Attempts: -1}} {
		d := limited.Of(steps.New("step", func(_ context.Context, s string) (string, error) { return s, nil }, o))
		if d.Err() == nil {
			t.Errorf("option %d, %+v, was taken", i, o)
		}
		if _, err := engine.New(ctx, pool, engine.Config{Workflows: []steps.Definition{d}}); err == nil {
			t.Errorf("option %d, %+v, was taken by an engine", i, o)
		}
	}
	e := effEngine(t, pool, engine.Config{})
	if err := e.Work(ctx); err == nil {
		t.Error("an engine without workflows works")
	}
	e = effEngine(t, pool, engine.Config{Workflows: []steps.Definition{ok}, Queues: []string{"nobody's"}})
	if err := e.Work(ctx); err == nil {
		t.Error("an engine without a queue works")
	}
	if _, err := engine.Start(ctx, e, steps.Declare[int, int]("never seen"), 1); !errors.Is(err, engine.ErrUnknownWorkflow) {
		t.Error(err)
	}
	if _, err := engine.Start(ctx, e, steps.Workflow[int, int]{}, 1); err == nil {
		t.Error("a zero workflow was started")
	}
	if _, err := engine.StartTx(ctx, e, nil, limited, "x"); err == nil {
		t.Error("a start in no transaction")
	}
}

// A pool that is closed, and a context that has ended, are told of by every
// verb, at once.
func TestLimitsOfPoolAndContext(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.Database(t)
	alive, closed := effPool(t, url), effPool(t, url)
	c := engine.Config{Workflows: []steps.Definition{limited.Of(steps.New("step", func(_ context.Context, s string) (string, error) { return s, nil }))}}
	good, bad := effEngine(t, alive, c), effEngine(t, closed, c)
	r := effStart(t, good, limited, "x", engine.Key("k"), engine.After(time.Hour))
	dead, err := engine.Handle(ctx, bad, limited, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	verbs := func(ctx context.Context, e *engine.Engine, r engine.Run[string]) map[string]func() error {
		return map[string]func() error{
			"New":        func() error { _, err := engine.New(ctx, closed, c); return err },
			"Start":      func() error { _, err := engine.Start(ctx, e, limited, "y"); return err },
			"StartMany":  func() error { _, err := engine.StartMany(ctx, e, limited, []string{"y"}); return err },
			"Find":       func() error { _, err := engine.Find(ctx, e, limited, "k"); return err },
			"Handle":     func() error { _, err := engine.Handle(ctx, e, limited, r.ID); return err },
			"Wait":       func() error { _, err := r.Wait(ctx); return err },
			"Get":        func() error { _, err := e.Get(ctx, r.ID); return err },
			"List":       func() error { _, err := e.List(ctx, engine.Filter{}); return err },
			"Cancel":     func() error { return e.Cancel(ctx, r.ID, effPerson) },
			"Replay":     func() error { return e.Replay(ctx, r.ID, effPerson) },
			"Resolve":    func() error { return e.Resolve(ctx, r.ID, effPerson, engine.ItNeverHappened("x")) },
			"ReleaseKey": func() error { return e.ReleaseKey(ctx, limited.Name(), "k", effPerson) },
			"Doctor":     func() error { _, err := e.Doctor(ctx); return err },
		}
	}
	for verb, do := range verbs(ctx, bad, dead) {
		if do() == nil {
			t.Errorf("%s on a closed pool", verb)
		}
	}
	if bad.Work(ctx) == nil {
		t.Error("Work on a closed pool")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for verb, do := range verbs(ended, good, r) {
		if err := do(); !errors.Is(err, context.Canceled) && verb != "New" {
			t.Errorf("%s with a context that has ended: %v", verb, err)
		}
	}
	if err := good.Work(ended); err != nil {
		t.Errorf("Work with a context that has ended: %v", err)
	}
	tx, err := alive.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.StartTx(ended, good, tx, limited, "y"); !errors.Is(err, context.Canceled) {
		t.Errorf("StartTx with a context that has ended: %v", err)
	}
	if err := tx.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		t.Log(err) // the driver has closed the connection, as it may
	}
	if infos, err := good.List(ctx, engine.Filter{}); err != nil || len(infos) != 1 {
		t.Errorf("%d runs, %v", len(infos), err)
	}
	if info := effGet(t, good, r.ID); info.State != engine.Scheduled {
		t.Errorf("%+v", info)
	}
}

// Ids that are none, and those of nobody.
func TestLimitsOfIDs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	e := limitEngine(t, engine.Config{})
	r := effStart(t, e, limited, "x")
	for _, id := range []string{"", "x", "\x00", "\xff", strings.Repeat("0", 1000), "00000000-0000-7000-8000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", r.ID + "0", r.ID[:35] + "g"} {
		_, herr := engine.Handle(ctx, e, limited, id)
		_, gerr := e.Get(ctx, id)
		for verb, err := range map[string]error{"Handle": herr, "Get": gerr, "Cancel": e.Cancel(ctx, id, effPerson), "Replay": e.Replay(ctx, id, effPerson), "Resolve": e.Resolve(ctx, id, effPerson, engine.ItNeverHappened("x"))} {
			if !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("%s of %.50q: %v", verb, id, err)
			}
		}
	}
	if _, err := engine.Find(ctx, e, limited, "nobody's"); !errors.Is(err, engine.ErrNotFound) {
		t.Error(err)
	}
	for _, key := range []string{"\x00", "\xff", strings.Repeat("k", 513)} {
		if _, err := engine.Find(ctx, e, limited, key); err == nil {
			t.Errorf("found %.20q", key)
		}
	}
	if err := e.ReleaseKey(ctx, limited.Name(), "nobody's", effPerson); !errors.Is(err, engine.ErrNotFound) {
		t.Error(err)
	}
	if _, err := engine.Handle(ctx, e, steps.Declare[string, string]("another"), r.ID); err == nil || errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a handle of another workflow: %v", err)
	}
	if _, err := (engine.Run[string]{}).Wait(ctx); err == nil {
		t.Error("waited for nothing")
	}
	if h, err := engine.Handle(ctx, e, limited, strings.ToUpper(r.ID)); err != nil {
		t.Error(err)
	} else if _, err := e.Get(ctx, h.ID); err != nil {
		t.Error(err)
	}
	if _, err := e.Get(ctx, fmt.Sprintf("{%s}", r.ID)); err != nil && !errors.Is(err, engine.ErrNotFound) {
		t.Error(err)
	}
}
