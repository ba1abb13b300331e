package steps_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/internal/plan"
	"github.com/pawlworks/pawl/steps"
)

type pos struct {
	Off  int64
	Seen []string
	F    float64 `json:",omitempty"`
}

// fakeCursor is an engine's side that can fail.
type fakeCursor struct {
	at          []byte
	err         error
	done, total int64
	onCommit    func()
}

func (c *fakeCursor) At() []byte { return c.at }

func (c *fakeCursor) Commit(_ context.Context, v []byte) error {
	if c.onCommit != nil {
		c.onCommit()
	}
	if c.err == nil {
		c.at = v
	}
	return c.err
}

func (c *fakeCursor) CommitTx(ctx context.Context, v []byte, fn func(pgx.Tx) error) error {
	if err := fn(nil); err != nil {
		return err
	}
	return c.Commit(ctx, v)
}

func (c *fakeCursor) Progress(done, total int64) { c.done, c.total = done, total }

// long runs body with a cursor over back, as an engine would.
func long(t *testing.T, back plan.Cursor, body func(*steps.Cursor[pos])) error {
	t.Helper()
	s := only(t, word.Of(steps.NewLong("rows", func(_ context.Context, s string, c *steps.Cursor[pos]) (string, error) {
		body(c)
		return s, nil
	})))
	_, err := s.Body(ctx, "in", nil, back)
	return err
}

func TestCursorMovesAfterTheCommit(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	back := &fakeCursor{}
	err := long(t, back, func(c *steps.Cursor[pos]) {
		if !reflect.DeepEqual(c.At(), pos{}) {
			t.Errorf("begins at %+v", c.At())
		}
		back.onCommit = func() {
			if c.At().Off != 0 {
				t.Error("it moved before the commit")
			}
		}
		if err := c.Commit(ctx, pos{Off: 5}); err != nil || c.At().Off != 5 || string(back.at) != `{"Off":5,"Seen":null}` {
			t.Errorf("%v, at %+v, stored %s", err, c.At(), back.at)
		}
		back.onCommit = nil

		back.err = steps.ErrLeaseLost
		nop := func(pgx.Tx) error { return nil }
		for _, err := range []error{c.Commit(ctx, pos{Off: 6}), c.CommitTx(ctx, pos{Off: 6}, nop)} {
			if !errors.Is(err, steps.ErrLeaseLost) || c.At().Off != 5 {
				t.Errorf("%v, at %+v", err, c.At())
			}
		}
		back.err = nil
		if err := c.CommitTx(ctx, pos{Off: 6}, func(pgx.Tx) error { return lost }); !errors.Is(err, lost) || c.At().Off != 5 {
			t.Errorf("%v, at %+v", err, c.At())
		}
		if err := c.CommitTx(ctx, pos{Off: 6}, nop); err != nil || c.At().Off != 6 {
			t.Errorf("%v, at %+v", err, c.At())
		}
		if c.Progress(3, 9); back.done != 3 || back.total != 9 {
			t.Errorf("progress %d of %d", back.done, back.total)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

func TestCursorCarriesOn(t *testing.T) {
	t.Parallel()
	err := long(t, &fakeCursor{at: []byte(`{"Off":7}`)}, func(c *steps.Cursor[pos]) {
		if c.At().Off != 7 {
			t.Errorf("at %+v", c.At())
		}
	})
	if err != nil {
		t.Error(err)
	}
	err = long(t, &fakeCursor{at: []byte(`"row 7"`)}, func(*steps.Cursor[pos]) { t.Error("the body was called") })
	if e := steps.Classify(err); e == nil || e.Class != steps.ClassPermanent || e.Code != "DECODE" || !e.Marked() {
		t.Errorf("got %+v", e)
	}
	wantText(t, err, `the cursor of step "rows"`)
}

func TestCursorRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]*steps.Cursor[pos]{"new": steps.NewCursor(pos{Off: 1}), "zero": {}} {
		start := c.At()
		for want, err := range map[string]error{
			"ENCODE":   c.Commit(ctx, pos{Seen: []string{"\xff"}}),
			"encode":   c.Commit(ctx, pos{F: math.NaN()}),
			"NIL_FUNC": c.CommitTx(ctx, pos{Off: 9}, nil),
			"overlap": c.CommitTx(ctx, pos{Off: 9}, func(pgx.Tx) error {
				return c.Commit(ctx, pos{Off: 8})
			}),
		} {
			wantText(t, err, want)
		}
		done, cancel := context.WithCancelCause(ctx)
		cancel(steps.ErrDrained)
		if err := c.Commit(done, pos{Off: 9}); !errors.Is(err, steps.ErrDrained) {
			t.Errorf("%s: %v in a context that ended", name, err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = c.CommitTx(ctx, pos{Off: 9}, func(pgx.Tx) error { panic("oops") })
		}()
		if !reflect.DeepEqual(c.At(), start) {
			t.Errorf("%s: moved to %+v", name, c.At())
		}
		if err := c.Commit(ctx, pos{Off: 2}); err != nil || c.At().Off != 2 {
			t.Errorf("%s: %v, at %+v", name, err, c.At())
		}
		c.Progress(1, 2)
	}
	bad := steps.NewCursor(pos{F: math.NaN()})
	wantText(t, bad.Commit(ctx, pos{}), "ENCODE")
}

func TestCursorInMemory(t *testing.T) {
	t.Parallel()
	c := steps.NewCursor(pos{Off: 3})
	calls := 0
	err := c.CommitTx(ctx, pos{Off: 4}, func(tx pgx.Tx) error {
		if calls++; tx != nil || c.At().Off != 3 {
			t.Errorf("tx %v, at %+v", tx, c.At())
		}
		return nil
	})
	if err != nil || calls != 1 || c.At().Off != 4 {
		t.Errorf("%v, %d calls, at %+v", err, calls, c.At())
	}
	p := pos{Seen: []string{"a"}}
	if err := c.Commit(ctx, p); err != nil {
		t.Fatal(err)
	}
	p.Seen[0] = "changed"
	c.At().Seen[0] = "changed"
	if c.At().Seen[0] != "a" {
		t.Error("the position changed without a commit")
	}
}

func TestAttempt(t *testing.T) {
	t.Parallel()
	if k := steps.IdempotencyKey(ctx); k != "" {
		t.Errorf("key %q outside of an attempt", k)
	}
	if err := steps.Acknowledge(ctx); err != nil {
		t.Error(err)
	}
	if _, ok := steps.LateResult[string](ctx); ok {
		t.Error("a late result outside of an attempt")
	}
	if k := steps.IdempotencyKey(steps.WithKey(ctx, "k")); k != "k" {
		t.Errorf("key %q", k)
	}
	late, has := `"out"`, true
	attempt := &plan.Attempt{
		Key:         func() string { return "real" },
		Acknowledge: func(context.Context) error { return steps.ErrLeaseLost },
		Late:        func() ([]byte, bool) { return []byte(late), has },
	}
	in := plan.WithAttempt(ctx, attempt)
	if k := steps.IdempotencyKey(in); k != "real" {
		t.Errorf("key %q", k)
	}
	for _, c := range []context.Context{in, steps.WithKey(in, "other")} {
		if err := steps.Acknowledge(c); err != steps.ErrLeaseLost {
			t.Error(err)
		}
	}
	if attempt.Key() != "real" {
		t.Error("WithKey changed the attempt")
	}
	if v, ok := steps.LateResult[string](in); v != "out" || !ok {
		t.Errorf("%q, %v", v, ok)
	}
	if v, ok := steps.LateResult[int](in); v != 0 || ok {
		t.Errorf("%d, %v", v, ok)
	}
	if has = false; true {
		if _, ok := steps.LateResult[string](in); ok {
			t.Error("a late result that is not there")
		}
	}
	if _, ok := steps.LateResult[string](steps.WithKey(ctx, "k")); ok {
		t.Error("a late result without an attempt")
	}
}
