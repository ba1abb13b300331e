package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// encoded is a string that is so many bytes as JSON.
func encoded(bytes int) string { return strings.Repeat("x", bytes-2) }

// A mebibyte fits to the byte, and not a byte more: what a step returns, what an
// effect returns, what a Map makes of a small output for the result, a cursor.
func TestLimitsToTheByte(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	returns := func(_ context.Context, n int) (string, error) { return encoded(n), nil }
	saved := func(cur *steps.Cursor[string], n int) string { // itself never too large
		if cur.At() != encoded(n) {
			return cur.At()
		}
		return encoded(limitPayload)
	}
	moves := func(ctx context.Context, n int, cur *steps.Cursor[string]) (string, error) {
		if err := cur.Commit(ctx, "before"); err != nil {
			return "", err
		}
		err := cur.Commit(ctx, encoded(n))
		return saved(cur, n), err
	}
	movesTx := func(ctx context.Context, n int, cur *steps.Cursor[string]) (string, error) {
		err := cur.CommitTx(ctx, encoded(n), func(pgx.Tx) error { return nil })
		return saved(cur, n), err
	}
	settled := func(context.Context, int) (steps.Verdict[string], error) { return steps.StillUnknown[string](0), nil }
	names := []string{"output", "tx", "idempotent", "lookup", "manual", "cursor", "cursor-tx", "result", "result-of-effect"}
	contract := map[string]steps.Workflow[int, string]{}
	for _, n := range names {
		contract[n] = steps.Declare[int, string]("bytes-" + n)
	}
	mapped := func(w steps.Workflow[int, string], opts ...steps.Option) steps.Definition {
		return w.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[string] {
			small := steps.New("step", func(_ context.Context, n int) (int, error) { return n, nil }, opts...).Do(f, in)
			return steps.Map(small, encoded)
		})
	}
	e := effEngine(t, effPool(t, pgtest.Database(t)), engine.Config{Workflows: []steps.Definition{
		contract["output"].Of(steps.New("step", returns)),
		contract["tx"].Of(steps.NewTx("step", func(ctx context.Context, _ pgx.Tx, n int) (string, error) { return returns(ctx, n) })),
		contract["idempotent"].Of(steps.New("step", returns, steps.Idempotent(steps.Forever))),
		contract["lookup"].Of(steps.New("step", returns).LookUp(settled, time.Millisecond)),
		contract["manual"].Of(steps.New("step", returns, steps.Manual())),
		contract["cursor"].Of(steps.NewLong("step", moves)),
		contract["cursor-tx"].Of(steps.NewLong("step", movesTx)),
		mapped(contract["result"]),
		mapped(contract["result-of-effect"], steps.Idempotent(steps.Forever)),
	}})
	work(t, e)
	for _, n := range names {
		r := effStart(t, e, contract[n], limitPayload)
		if out := effSuccess(t, e, r); out != encoded(limitPayload) {
			t.Errorf("%s of a mebibyte: %d bytes came back", n, len(out))
		}
	}
	for _, n := range names {
		r := effStart(t, e, contract[n], limitPayload+1)
		want := engine.Failed
		if n == "idempotent" || n == "lookup" || n == "manual" { // it has happened, and can't be kept
			want = engine.Uncertain
		}
		info := effState(t, e, r.ID, engine.Failed, engine.Uncertain, engine.Succeeded)
		if info.State != want || info.Code != "TOO_LARGE" || !info.DueAt.IsZero() {
			t.Errorf("%s of a byte more: %s, %s, due at %v: %v", n, info.State, info.Code, info.DueAt, effEvents(info))
			continue
		}
		h := info.History[len(info.History)-1]
		if h.Code != "TOO_LARGE" || !strings.Contains(h.Reason, "1048577 bytes, more than 1048576") || h.Attempt != 1 || len(h.Output) > 0 {
			t.Errorf("%s of a byte more is recorded as %s, attempt %d: %s", n, h.Code, h.Attempt, h.Reason)
		}
		switch {
		case want == engine.Uncertain:
			if h.Class != "uncertain" || len(info.History) != 1 || h.Writer != "worker" {
				t.Errorf("%s: %+v", n, info.History)
			}
			if err := e.Resolve(ctx, r.ID, effPerson, engine.ItHappened("its number", "seen")); err != nil {
				t.Error(err)
			}
			if out := effSuccess(t, e, r); out != "its number" {
				t.Errorf("%s: settled as %q", n, out)
			}
			continue
		case strings.HasPrefix(n, "result"): // the step is done all the same, and only once
			if len(info.History) != 2 || info.History[0].Event != "completed" || info.History[0].Step != "step" || h.Step != "result" {
				t.Errorf("%s: %+v", n, info.History)
			}
		case len(info.History) != 1 || h.Step != "step":
			t.Errorf("%s: %+v", n, info.History)
		}
		_, err := effResult(t, e, r)
		var failed *engine.FailedError
		if h.Class != "permanent" || !errors.As(err, &failed) || failed.Code != "TOO_LARGE" {
			t.Errorf("%s: %s, %v", n, h.Class, err)
		}
	}
}
