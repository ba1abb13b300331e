package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

var (
	patient = steps.Declare[string, string]("patient")
	by37    = engine.By{Actor: "test", Reason: "case 37"}
)

// patientSteps: "dead" dies at its first attempt, "unsure" is uncertain until
// somebody settles it, anything else succeeds.
func patientSteps(attempts *atomic.Int64) steps.Definition {
	return patient.Of(steps.New("step", func(_ context.Context, s string) (string, error) {
		attempts.Add(1)
		switch s {
		case "dead":
			return "", steps.Permanent("BAD", errors.New("no good"))
		case "unsure":
			return "", errors.New("who knows")
		}
		return s, nil
	}, steps.Manual()))
}

// TestCase37 keeps transactions open across everything else that happens: one
// in which a run is started late, and old snapshots and an old clock beside
// it. What one verb sees, all the others see.
//
// For how long they are open does not matter, only what happens meanwhile, and
// that is in order by itself: other runs begin and end between the transaction's
// first statement, its start and its commit, and every time that is compared was
// read in between. A minute of waiting would add nothing.
func TestCase37(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	more := envPool(t, pool.Config().ConnString())
	var attempts atomic.Int64
	e := envEngine(t, pool, engine.Config{Workflows: []steps.Definition{patientSteps(&attempts)}})

	// Begun long before: its now() stands still, and one has a snapshot too.
	begin := func(level pgx.TxIsoLevel) pgx.Tx {
		tx, err := more.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(ctx) })
		var old time.Time
		if err := tx.QueryRow(ctx, "SELECT now()").Scan(&old); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	tx, rolledBack := begin(pgx.ReadCommitted), begin(pgx.ReadCommitted)
	begin(pgx.RepeatableRead)
	work(t, e)
	before := effStart(t, e, patient, "before", engine.Key("before"))
	effSuccess(t, e, before)

	asked := effScan[time.Time](t, pool, "SELECT clock_timestamp()")
	run, err := engine.StartTx(ctx, e, tx, patient, "late", engine.Key("late"))
	if err != nil || run.Existed {
		t.Fatal(run, err)
	}
	again, err := engine.StartTx(ctx, e, tx, patient, "late", engine.Key("late"))
	if err != nil || !again.Existed || again.ID != run.ID {
		t.Error("the transaction does not see its own start: ", again, err)
	}
	if known, err := engine.StartTx(ctx, e, tx, patient, "before", engine.Key("before")); err != nil || known.ID != before.ID {
		t.Error("an old transaction does not see a run that has ended meanwhile: ", known, err)
	}
	gone, err := engine.StartTx(ctx, e, rolledBack, patient, "gone", engine.Key("gone"))
	if err != nil {
		t.Fatal(err)
	}
	nobodySees(t, e, run.ID, "late")
	nobodySees(t, e, gone.ID, "gone")
	// Whoever went on from the newest run or job seen would never see these two.
	newer := effStart(t, e, patient, "newer", engine.Key("newer"))
	effSuccess(t, e, newer)
	if newer.ID <= run.ID || newer.ID <= gone.ID {
		t.Errorf("run %s is older than %s or %s", newer.ID, run.ID, gone.ID)
	}
	if err := errors.Join(tx.Commit(ctx), rolledBack.Rollback(ctx)); err != nil {
		t.Fatal(err)
	}
	everybodySees(t, e, run.ID, "late")
	nobodySees(t, e, gone.ID, "gone")
	if out := effSuccess(t, e, run); out != "late" {
		t.Error(out)
	}
	// It was started when StartTx was called, not when its transaction began.
	if info := effGet(t, e, run.ID); info.CreatedAt.Before(asked) {
		t.Errorf("created %v, asked for after %v", info.CreatedAt, asked)
	}

	// With old transactions still about, acts take effect for every verb at once.
	begin(pgx.RepeatableRead)
	for _, s := range []struct {
		input string
		state engine.State
		act   func(id string) error
		after engine.State
	}{
		{"dead", engine.Failed, func(id string) error { return e.Replay(ctx, id, by37, engine.WithInput("mended")) }, engine.Succeeded},
		{"unsure", engine.Uncertain, func(id string) error {
			return e.Resolve(ctx, id, by37, engine.ItHappened("settled", "seen in the books"))
		}, engine.Succeeded},
		{"later", engine.Scheduled, func(id string) error { return e.Cancel(ctx, id, by37) }, engine.Cancelled},
	} {
		opts := []engine.StartOption{engine.Key(s.input)}
		if s.input == "later" {
			opts = append(opts, engine.After(time.Hour))
		}
		r := effStart(t, e, patient, s.input, opts...)
		effUntil(t, string(s.state), func() bool { return effGet(t, e, r.ID).State == s.state })
		everybodySees(t, e, r.ID, s.input)
		if err := s.act(r.ID); err != nil {
			t.Errorf("%s: %v", s.input, err)
		}
		effUntil(t, string(s.after), func() bool { return effGet(t, e, r.ID).State == s.after })
		everybodySees(t, e, r.ID, s.input)
	}
}

// nobodySees asks every verb for a run that is not committed, or never was.
func nobodySees(t *testing.T, e *engine.Engine, id, key string) {
	t.Helper()
	ctx := context.Background()
	_, handle := engine.Handle(ctx, e, patient, id)
	_, find := engine.Find(ctx, e, patient, key)
	_, get := e.Get(ctx, id)
	for verb, err := range map[string]error{
		"Handle": handle, "Find": find, "Get": get,
		"Cancel":     e.Cancel(ctx, id, by37),
		"Replay":     e.Replay(ctx, id, by37),
		"Resolve":    e.Resolve(ctx, id, by37, engine.ItNeverHappened("nothing in the books")),
		"ReleaseKey": e.ReleaseKey(ctx, patient.Name(), key, by37),
	} {
		if !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("%s of an uncommitted run: %v", verb, err)
		}
	}
	for _, f := range []engine.Filter{{}, {Key: key}, {Workflow: patient.Name()}} {
		list, err := e.List(ctx, f)
		if err != nil || slices.ContainsFunc(list, func(r engine.RunInfo) bool { return r.ID == id }) {
			t.Errorf("List(%+v) of an uncommitted run: %v", f, err)
		}
	}
}

// everybodySees asks every verb that only reads, and compares what they say.
func everybodySees(t *testing.T, e *engine.Engine, id, key string) {
	t.Helper()
	ctx := context.Background()
	if r, err := engine.Handle(ctx, e, patient, id); err != nil || r.ID != id {
		t.Errorf("Handle: %v %v", r.ID, err)
	}
	if r, err := engine.Find(ctx, e, patient, key); err != nil || r.ID != id {
		t.Errorf("Find: %v %v", r.ID, err)
	}
	if r, err := engine.Start(ctx, e, patient, key, engine.Key(key)); err != nil || r.ID != id || !r.Existed {
		t.Errorf("Start with its key: %+v %v", r, err)
	}
	// A worker may move it between two questions: then they are asked again.
	said := ""
	effUntil(t, "Get and List agree", func() bool {
		info, err := e.Get(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		list, err := e.List(ctx, engine.Filter{Key: key, States: []engine.State{info.State}})
		if err != nil {
			t.Fatal(err)
		}
		said = fmt.Sprintf("%+v %+v", info, list)
		return len(list) == 1 && list[0].ID == id && list[0].State == info.State && list[0].EndedAt.Equal(info.EndedAt)
	})
	if said == "" {
		t.Error("nobody said anything")
	}
}
