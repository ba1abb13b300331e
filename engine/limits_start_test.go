package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// A run that is started in a transaction is there when that commits, and never
// was if it rolls back; nor is its key.
func TestStartTx(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := effPool(t, pgtest.Database(t))
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{limited.Of(steps.New("step", func(_ context.Context, s string) (string, error) { return s, nil }))}})
	effExec(t, pool, "CREATE TABLE public.orders (id text)")
	work(t, e)
	for _, commit := range []bool{false, true} {
		var r engine.Run[string]
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
			if _, err := tx.Exec(ctx, "SET LOCAL search_path = nowhere; INSERT INTO public.orders VALUES ('o')"); err != nil {
				return err
			}
			if r, err = engine.StartTx(ctx, e, tx, limited, "o", engine.Key("order o")); err != nil {
				return err
			}
			again, err := engine.StartTx(ctx, e, tx, limited, "o", engine.Key("order o"))
			if err != nil || again.ID != r.ID || !again.Existed || r.Existed {
				t.Errorf("in the same transaction: %+v, %v", again, err)
			}
			if _, err := e.Get(ctx, r.ID); !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("seen before the commit: %v", err)
			}
			if !commit {
				return errPlain
			}
			return nil
		})
		if commit != (err == nil) {
			t.Fatal(err)
		}
		found, err := engine.Find(ctx, e, limited, "order o")
		if !commit {
			if _, gerr := e.Get(ctx, r.ID); !errors.Is(gerr, engine.ErrNotFound) || !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("after a rollback: %v, %v", gerr, err)
			}
			continue
		}
		if err != nil || found.ID != r.ID {
			t.Errorf("found %+v, %v", found, err)
		}
		if out := effSuccess(t, e, r); out != "o" {
			t.Errorf("got %q", out)
		}
	}
	if n := effScan[int](t, pool, "SELECT count(*) FROM public.orders"); n != 1 {
		t.Errorf("%d orders", n)
	}
	// What is refused inside a transaction is told, and the transaction is the caller's to end.
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := engine.StartTx(ctx, e, tx, limited, "x", engine.Key("")); err == nil {
			t.Error("an empty key was taken")
		}
		_, err := engine.StartTx(ctx, e, tx, limited, "another", engine.Key("order o"))
		if !errors.Is(err, engine.ErrKeyConflict) {
			t.Errorf("a key with another input: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Errorf("a refused start spoiled the transaction: %v", err)
	}
}

// StartMany starts all or none, in order; a key that is there twice starts
// once, with the first of its inputs.
func TestStartMany(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	e := limitEngine(t, engine.Config{})
	runs, err := engine.StartMany(ctx, e, limited, []string{"a", "b", "a", "c", "d"}, engine.Keys([]string{"ka", "kb", "ka", "", ""}))
	if err != nil || len(runs) != 5 {
		t.Fatal(runs, err)
	}
	if runs[0].ID != runs[2].ID || runs[0].Existed == runs[2].Existed || runs[1].Existed || runs[3].Existed || runs[3].ID == runs[4].ID {
		t.Errorf("%+v", runs)
	}
	for i, want := range []string{`"a"`, `"b"`, `"a"`, `"c"`, `"d"`} {
		if got := string(effGet(t, e, runs[i].ID).Input); got != want {
			t.Errorf("run %d has the input %s", i, got)
		}
	}
	// A conflict inside a batch, and one with a run from before.
	for i := range 20 { // that the first wins must not be by chance
		k := fmt.Sprint("twice ", i)
		runs, err = engine.StartMany(ctx, e, limited, []string{"first", "second"}, engine.Keys([]string{k, k}))
		if !errors.Is(err, engine.ErrKeyConflict) || len(runs) != 2 || runs[0].ID != runs[1].ID || runs[0].Existed || !runs[1].Existed {
			t.Fatalf("%+v, %v", runs, err)
		}
		if got := string(effGet(t, e, runs[0].ID).Input); got != `"first"` {
			t.Errorf("the second of two inputs was started: %s", got)
		}
	}
	r, err := engine.Start(ctx, e, limited, "b again", engine.Key("kb"))
	if !errors.Is(err, engine.ErrKeyConflict) || r.ID == "" || !r.Existed {
		t.Errorf("%+v, %v", r, err)
	}
	before, err := e.List(ctx, engine.Filter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []func() error{
		func() error {
			_, err := engine.StartMany(ctx, e, limited, []string{"a", strings.Repeat("x", limitPayload)})
			return err
		},
		func() error { _, err := engine.StartMany(ctx, e, limited, []string{"a", "\xff"}); return err },
		func() error {
			_, err := engine.StartMany(ctx, e, limited, []string{"a", "b"}, engine.Key("k"))
			return err
		},
		func() error {
			_, err := engine.StartMany(ctx, e, limited, []string{"a", "b"}, engine.Keys([]string{"new", "\x00"}))
			return err
		},
	} {
		if bad() == nil {
			t.Error("a batch with a bad start was taken")
		}
	}
	if none, err := engine.StartMany(ctx, e, limited, nil); err != nil || len(none) != 0 {
		t.Errorf("%v, %v", none, err)
	}
	after, err := e.List(ctx, engine.Filter{Limit: 1000})
	if err != nil || len(after) != len(before) {
		t.Errorf("%d runs, then %d: %v", len(before), len(after), err)
	}
}

// Starting from plain SQL: the same limits, the same keys, and a worker works on.
func TestStartSQL(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[string, string]("from-sql")
	log := &effLog{}
	e := effEngine(t, pool, engine.Config{Session: time.Second, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Workflows: []steps.Definition{w.Of(steps.New("step", func(_ context.Context, s string) (string, error) { return s, nil }))}})
	start := func(args string, values ...any) (id string, err error) {
		err = pool.QueryRow(ctx, "SELECT pawl.start("+args+")", values...).Scan(&id)
		return id, err
	}
	for _, c := range []struct {
		args  string
		value any
		state string
	}{
		{"'nobody', $1::json", `1`, "PW001"},
		{"'from-sql', $1::json", `"` + strings.Repeat("x", limitPayload-1) + `"`, "PW003"},
		{"'from-sql', $1::json, priority => 4", `"x"`, "PW004"},
		{"'from-sql', $1::json, priority => -1", `"x"`, "PW004"},
		{"'from-sql', $1::json, key => ''", `"x"`, "PW004"},
		{"'from-sql', $1::json, key => repeat('k', 513)", `"x"`, "PW004"},
		{"'from-sql', $1::json", `{"broken"`, "22P02"},
		{"'from-sql', $1::json", "\"\xff\"", "22021"},
	} {
		_, err := start(c.args, c.value)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != c.state {
			t.Errorf("%s: %v", c.args, err)
		}
	}
	if n := effScan[int](t, pool, "SELECT count(*) FROM pawl.run"); n != 0 {
		t.Errorf("%d runs were started by calls that failed", n)
	}
	// Far in the future, and never: neither may stand in a worker's way.
	// Each has a priority, and so a route, of its own: what is due first there.
	for i, due := range []string{"infinity", "200000-01-01", "9999-12-31"} {
		if _, err := start("'from-sql', '\"never\"', due_at => $1::text::timestamptz, priority => $2", due, i+1); err != nil {
			t.Logf("due at %s: %v", due, err) // refused at once is as good
		}
	}
	if _, err := start("'from-sql', '\"at once\"', key => 'past', due_at => '-infinity', priority => 0"); err != nil {
		t.Error(err)
	}
	work(t, e)
	want := map[string]string{}
	for text, quoted := range map[string]string{"plain": `"plain"`, "a\x00b": `"a\u0000b"`, "it's 🦀": `"it's 🦀"`, "spaced": ` "spaced" `, strings.Repeat("x", 400): `"` + strings.Repeat("x", 400) + `"`} {
		id, err := start("'from-sql', $1::json, key => $2, tags => ARRAY['a', 'b'], priority => 0", quoted, "key of "+strings.ReplaceAll(text, "\x00", ""))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		want[id] = text
	}
	for id, text := range want {
		r, err := engine.Handle(ctx, e, w, id)
		if err != nil {
			t.Fatal(err)
		}
		if out := effSuccess(t, e, r); out != text {
			t.Errorf("%q came back as %q", text, out)
		}
	}
	if past, err := engine.Find(ctx, e, w, "past"); err != nil {
		t.Error(err)
	} else {
		effSuccess(t, e, past)
	}
	id, err := start("'from-sql', '\"plain\"', key => 'key of plain'")
	if found, ferr := engine.Find(ctx, e, w, "key of plain"); err != nil || ferr != nil || found.ID != id {
		t.Errorf("%s, %v; %+v, %v", id, err, found, ferr)
	}
	var pg *pgconn.PgError
	if _, err := start("'from-sql', '\"other\"', key => 'key of plain'"); !errors.As(err, &pg) || pg.Code != "PW002" || !strings.Contains(pg.Message, id) {
		t.Errorf("the same key with another input: %v", err)
	}
	if r, err := engine.Start(ctx, e, w, "plain", engine.Key("key of plain")); err != nil || r.ID != id {
		t.Errorf("the same start from Go: %+v, %v", r, err)
	}
	// A row that the pulse could not read would be the end of every worker.
	effUntil(t, "the session to be renewed some times", func() bool {
		return effScan[bool](t, pool, "SELECT bool_or(expires_at > started_at + interval '3 seconds') FROM pawl.session")
	})
	effSuccess(t, e, effStart(t, e, w, "afterwards"))
	if text := log.text(); strings.Contains(text, "Infinity") {
		t.Errorf("the worker could not read what it found:\n%.2000s", text)
	}
}
