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
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/steps"
)

var (
	tourist = steps.Declare[string, string]("tourist")
	sights  = steps.Declare[string, []string]("sights")
	tourBy  = engine.By{Actor: `O'Neil \ "x"`, Reason: `a\'b -- ; $1`}
)

// tourText holds what a setting of quoting or encoding would break.
const tourText = `it's a \ "backslash" \\x41 $1 %s 日本 é`

// tourWorkflows use every statement that a worker has: plain, transactional
// and long steps, effects that are looked up, and effects that people settle.
func tourWorkflows(table string) []steps.Definition {
	var dead, unsure, unanswered atomic.Bool
	echo := func(_ context.Context, s string) (string, error) { return s, nil }
	tx := steps.NewTx("tx", func(ctx context.Context, tx pgx.Tx, s string) (string, error) {
		_, err := tx.Exec(ctx, "INSERT INTO "+table+" VALUES ($1)", s)
		return s, err
	})
	long := steps.NewLong("long", func(ctx context.Context, s string, cur *steps.Cursor[int]) (string, error) {
		for i := cur.At(); i < 3; i++ {
			cur.Progress(int64(i), 3)
			err := cur.CommitTx(ctx, i+1, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO "+table+" VALUES ($1)", fmt.Sprint(i))
				return err
			})
			if err != nil {
				return "", err
			}
		}
		return s, cur.Commit(ctx, 4)
	}, steps.Lease(20*time.Second))
	looked := steps.New("looked", func(_ context.Context, s string) (string, error) {
		if !unanswered.Swap(true) {
			return "", errors.New("no answer")
		}
		return s, nil
	}).LookUp(func(context.Context, string) (steps.Verdict[string], error) {
		return steps.NeverHappened[string](), nil
	}, time.Millisecond,
		steps.Retry{Delay: 10 * time.Millisecond, MaxDelay: 50 * time.Millisecond})
	manual := steps.New("manual", func(_ context.Context, s string) (string, error) {
		if !unsure.Swap(true) {
			return "", errors.New("no answer")
		}
		return s, nil
	}, steps.Manual())
	dies := steps.New("dies", func(_ context.Context, s string) (string, error) {
		if !dead.Swap(true) {
			return "", steps.Permanent("BAD", errors.New(tourText))
		}
		return s, nil
	})
	keyed := steps.New("keyed", echo, steps.Idempotent(time.Hour))
	return []steps.Definition{
		tourist.Define(func(f *steps.Flow, in steps.Ref[string]) steps.Ref[string] {
			return dies.Do(f, manual.Do(f, looked.Do(f, long.Do(f, tx.Do(f, keyed.Do(f, in))))))
		}),
		sights.Of(steps.New("see", func(_ context.Context, s string) ([]string, error) { return []string{s, tourText}, nil })),
	}
}

// envTour starts, works, waits, asks and acts in every way there is, through a
// pool whose sessions have odd settings, and returns what happened, in short.
// The schema is there; table is a table of the user's.
func envTour(t *testing.T, pool *pgxpool.Pool, table string) (happened []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*envPatience)
	defer cancel()
	e := envEngine(t, pool, engine.Config{Workflows: tourWorkflows(table)})
	stop := work(t, e)
	run := effStart(t, e, tourist, tourText, engine.Key(tourText), engine.Tags(tourText, "a,b{}"), engine.WithPriority(engine.High))
	state := func(s engine.State) {
		t.Helper()
		effUntil(t, string(s), func() bool {
			info := effGet(t, e, run.ID)
			if info.State == engine.Failed && s != engine.Failed {
				t.Fatalf("%+v", info)
			}
			return info.State == s && (s != engine.Uncertain || info.Jobs[0].Step == "manual" && info.Jobs[0].DueAt.IsZero())
		})
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	state(engine.Uncertain)
	must(e.Resolve(ctx, run.ID, tourBy, engine.ItNeverHappened(tourText)))
	state(engine.Failed)
	var failed *engine.FailedError
	if _, err := run.Wait(ctx); !errors.As(err, &failed) || failed.Reason != tourText {
		t.Errorf("failed with %v", err)
	}
	must(e.Replay(ctx, run.ID, tourBy, engine.WithInput(tourText+"!")))
	if out := effSuccess(t, e, run); out != tourText+"!" {
		t.Errorf("got %q", out)
	}
	info := effGet(t, e, run.ID)
	for _, h := range info.History {
		happened = append(happened, fmt.Sprintf("%s %s %s>%s %s %s %q", h.Step, h.Event, h.From, h.To, h.Writer, h.Code, h.Actor))
	}
	if !slices.Equal(info.Tags, []string{tourText, "a,b{}"}) || info.Key != tourText || string(info.Input) != mustJSON(t, tourText) {
		t.Errorf("%q %q %s", info.Tags, info.Key, info.Input)
	}

	// In a transaction of the user's, with all his settings.
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadWrite})
	must(err)
	seen, err := engine.StartTx(ctx, e, tx, sights, "one", engine.Key("sight"), engine.ReuseAfter(time.Hour))
	must(err)
	var byHand string
	must(tx.QueryRow(ctx, "SELECT pawl.start('sights', '\"two\"', key => 'by hand', due_at => '2001-02-03 04:05:06+00')").Scan(&byHand))
	must(tx.Commit(ctx))
	if out := effSuccess(t, e, seen); !slices.Equal(out, []string{"one", tourText}) {
		t.Errorf("%q", out)
	}
	hand, err := engine.Find(ctx, e, sights, "by hand")
	must(err)
	if out := effSuccess(t, e, hand); hand.ID != byHand || !slices.Equal(out, []string{"two", tourText}) {
		t.Errorf("%s %q", hand.ID, out)
	}

	at := time.Date(2100, 2, 3, 4, 5, 6, 0, time.FixedZone("", 3600))
	later := effStart(t, e, sights, "never", engine.At(at))
	if i := effGet(t, e, later.ID); !i.DueAt.Equal(at) || i.State != engine.Scheduled || time.Since(i.CreatedAt).Abs() > time.Hour {
		t.Errorf("due %v, created %v, %s", i.DueAt, i.CreatedAt, i.State)
	}
	must(e.Cancel(ctx, later.ID, tourBy))
	if _, err := later.Wait(ctx); !errors.Is(err, engine.ErrCancelled) {
		t.Errorf("cancelled: %v", err)
	}
	must(e.ReleaseKey(ctx, "sights", "sight", tourBy))
	if r := effStart(t, e, sights, "again", engine.Key("sight")); r.Existed {
		t.Error("the key was not released")
	} else {
		effSuccess(t, e, r)
	}
	list, err := e.List(ctx, engine.Filter{Tags: []string{tourText}, Key: tourText, Since: info.CreatedAt, States: []engine.State{engine.Succeeded}})
	if err != nil || len(list) != 1 || list[0].ID != run.ID {
		t.Errorf("List: %+v %v", list, err)
	}
	if broken, err := e.Doctor(ctx); err != nil || len(broken) > 0 {
		t.Errorf("doctor: %v %v", broken, err)
	}
	stop()
	return happened
}
