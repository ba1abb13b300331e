package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

const limitPayload = 1 << 20

// limitTexts is text that breaks somebody's database somewhere.
var limitTexts = map[string]string{
	"a NUL":           "before\x00after",
	"4-byte runes":    "pawl 🦀 \U0001F469\u200d🔧 𐍈",
	"quotes":          `it's "quoted" \ $1 $$ {} %s; DROP TABLE pawl.run; --`,
	"a real U+FFFD":   "was it \ufffd?",
	"escapes":         `\u0000 \ufffd \n`,
	"control letters": "\x01\x1b[31m\r\n\t\u2028",
	"empty":           "",
}

var limited = steps.Declare[string, string](`it's "quoted" 🦀 \ $1 %s`)

// limitEngine echoes; what begins with a word does something else.
func limitEngine(t *testing.T, c engine.Config) *engine.Engine {
	c.Workflows = []steps.Definition{limited.Of(steps.NewLong(`a step's "name" 🦀 \ $1`, func(ctx context.Context, s string, cur *steps.Cursor[string]) (string, error) {
		what, rest, _ := strings.Cut(s, ":")
		switch what {
		case "permanent":
			return "", steps.Permanent(rest, errors.New(rest))
		case "bytes":
			return "", steps.Permanent("BYTES\x00\xff", errors.New("\xff\x00"+rest+"\xf0\x9f"))
		case "panic":
			panic(rest + "\x00\xff")
		case "output":
			return "\xff" + rest, nil
		case "cursor":
			return rest, cur.Commit(ctx, rest)
		case "uncertain":
			return "", steps.Uncertain(errors.New(rest))
		}
		return s, nil
	}, steps.RetryUnknown{Attempts: 1}, steps.Queue(`queue's "name" 🦀`), steps.Owner("who's who")))}
	if c.Name == "" {
		c.Name = "worker's \"name\" \x00\xff 🦀"
	}
	return effEngine(t, effPool(t, pgtest.Database(t)), c)
}

// Whatever text comes arrives as it was, or is refused at once by an error; it
// never hangs a run.
func TestLimitsOfText(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	e := limitEngine(t, engine.Config{})
	work(t, e)
	for what, text := range limitTexts {
		r := effStart(t, e, limited, text)
		if out := effSuccess(t, e, r); out != text {
			t.Errorf("%s: %q came back as %q", what, text, out)
		}
		r = effStart(t, e, limited, "cursor:"+text)
		if out := effSuccess(t, e, r); out != text {
			t.Errorf("%s: %q came back as %q", what, text, out)
		}
		r = effStart(t, e, limited, "permanent:"+text)
		_, err := effResult(t, e, r)
		var failed *engine.FailedError
		if !errors.As(err, &failed) || failed.Workflow != limited.Name() || failed.Reason != strings.ReplaceAll(text, "\x00", "\ufffd") {
			t.Errorf("%s: recorded as %v", what, err)
		}
		key, kerr := engine.Start(ctx, e, limited, text, engine.Key("key "+text), engine.Tags("tag "+text))
		if bad := strings.Contains(text, "\x00"); bad != (kerr != nil) {
			t.Errorf("%s: a key and a tag of it: %v", what, kerr)
		} else if !bad {
			found, err := engine.Find(ctx, e, limited, "key "+text)
			if infos, lerr := e.List(ctx, engine.Filter{Tags: []string{"tag " + text}}); err != nil || found.ID != key.ID || lerr != nil || len(infos) != 1 || infos[0].Key != "key "+text {
				t.Errorf("%s: found %+v, %v; %+v, %v", what, found, err, infos, lerr)
			}
		}
		r = effStart(t, e, limited, "uncertain:"+text)
		effState(t, e, r.ID, engine.Uncertain)
		evidence := "seen: " + text
		if err := e.Resolve(ctx, r.ID, effPerson, engine.ItHappened(text, evidence)); (err != nil) != strings.Contains(text, "\x00") {
			t.Errorf("%s: as evidence: %v", what, err)
		} else if err != nil {
			evidence = "seen"
			if err := e.Resolve(ctx, r.ID, effPerson, engine.ItHappened(text, evidence)); err != nil {
				t.Errorf("%s: as an output: %v", what, err)
				continue
			}
		}
		if out := effSuccess(t, e, r); out != text {
			t.Errorf("%s: %q came back as %q", what, text, out)
		}
		if h := effRows(effGet(t, e, r.ID), "resolved"); len(h) != 1 || h[0].EvidenceText != evidence {
			t.Errorf("%s: the evidence is recorded as %+v", what, h)
		}
	}
	for _, opts := range [][]engine.StartOption{{engine.Key("\xff")}, {engine.Key("")}, {engine.Key(strings.Repeat("k", 513))}, {engine.Tags("\xff")}, {engine.Tags("")},
		{engine.Tags(strings.Repeat("t", 201))}, {engine.Tags(strings.Fields(strings.Repeat("t ", 33))...)}, {engine.Key("a"), engine.Key("b")}, {engine.Keys([]string{"a", "b"})},
		{engine.WithPriority(-1)}, {engine.WithPriority(4)}, {engine.After(-1)}, {engine.ReuseAfter(-1)}, {engine.After(1), engine.At(time.Now())},
		{engine.At(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))}, {engine.At(time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC))}} {
		if r, err := engine.Start(ctx, e, limited, "x", opts...); err == nil {
			t.Errorf("started %+v", r)
		}
	}
	if _, err := engine.Start(ctx, e, limited, "\xff"); err == nil {
		t.Error("an input of invalid UTF-8 was taken")
	}
	r := effStart(t, e, limited, strings.Repeat("é", 4), nil, engine.Key(strings.Repeat("k", 512)), engine.Tags(strings.Repeat("t", 200)), engine.After(0), engine.At(time.Time{}))
	effSuccess(t, e, r)
}

// NUL and bytes that are no UTF-8, in an input, an output, an error and a panic:
// what can't be stored is recorded as a failure, and nothing hangs.
func TestCase30(t *testing.T) {
	t.Parallel()
	e := limitEngine(t, engine.Config{})
	work(t, e)
	for in, want := range map[string]struct{ code, says string }{
		"bytes:x":          {"BYTES__", "\ufffd\ufffdx\ufffd"},
		"panic:x":          {"PANIC", "x\ufffd\ufffd"},
		"output:\x00":      {"ENCODE", "invalid UTF-8"},
		"permanent:\x00":   {"_", "\ufffd"},
		"permanent:a\x00b": {"A_B", ""},
	} {
		r := effStart(t, e, limited, in)
		_, err := effResult(t, e, r)
		var failed *engine.FailedError
		if !errors.As(err, &failed) || !strings.EqualFold(failed.Code, want.code) || !strings.Contains(failed.Reason, want.says) {
			t.Errorf("%q: %v", in, err)
		}
	}
	r := effStart(t, e, limited, "a\x00b")
	if out := effSuccess(t, e, r); out != "a\x00b" {
		t.Errorf("%q", out)
	}
	long := effStart(t, e, limited, "permanent:"+strings.Repeat("🦀", 100_000))
	_, err := effResult(t, e, long)
	var failed *engine.FailedError
	if !errors.As(err, &failed) || len(failed.Reason) > 8<<10 || !strings.HasSuffix(failed.Reason, "🦀") {
		t.Errorf("an error's text of 400,000 bytes: %d are kept", len(failed.Reason))
	}
}

// A mebibyte fits, a byte more is refused at once: as an input, a corrected
// input, a person's word. (What steps make: TestLimitsToTheByte.)
func TestLimitsOfSize(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	e := limitEngine(t, engine.Config{})
	work(t, e)
	fits := strings.Repeat("x", limitPayload-2) // and two quotes
	if out := effSuccess(t, e, effStart(t, e, limited, fits)); out != fits {
		t.Errorf("%d bytes came back", len(out))
	}
	if _, err := engine.Start(ctx, e, limited, fits+"x"); !errors.Is(err, engine.ErrTooLarge) {
		t.Errorf("an input: %v", err)
	}
	small := limitEngine(t, engine.Config{MaxPayload: 100})
	work(t, small)
	r := effStart(t, small, limited, "cursor:"+strings.Repeat("é", 40))
	effSuccess(t, small, r)
	r = effStart(t, small, limited, "permanent:x")
	effState(t, small, r.ID, engine.Failed)
	if err := small.Replay(ctx, r.ID, effPerson, engine.WithInput(strings.Repeat("x", 99))); !errors.Is(err, engine.ErrTooLarge) {
		t.Errorf("a corrected input: %v", err)
	}
	if err := small.Replay(ctx, r.ID, effPerson, engine.WithInput("\xff")); err == nil {
		t.Error("a corrected input of invalid UTF-8 was taken")
	}
	if err := small.Replay(ctx, r.ID, effPerson, engine.WithInput(strings.Repeat("x", 98))); err != nil {
		t.Error(err)
	}
	if out := effSuccess(t, small, r); len(out) != 98 {
		t.Errorf("got %q", out)
	}
	r = effStart(t, small, limited, "uncertain:x")
	effState(t, small, r.ID, engine.Uncertain)
	if err := small.Resolve(ctx, r.ID, effPerson, engine.ItHappened(strings.Repeat("x", 99), "seen")); !errors.Is(err, engine.ErrTooLarge) {
		t.Errorf("a person's word: %v", err)
	}
	if err := small.Resolve(ctx, r.ID, effPerson, engine.ItHappened(strings.Repeat("x", 98), "seen")); err != nil {
		t.Error(err)
	}
	effSuccess(t, small, r)
}

// An effect that has happened and whose output is too large is not dead: what
// came of it can't be kept, and a person is asked.
func TestLimitsOfEffects(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := steps.Declare[int, string]("large-receipts")
	e := effEngine(t, pgtest.Pool(t), engine.Config{MaxPayload: 50, Workflows: []steps.Definition{w.Of(steps.New("pay", func(context.Context, int) (string, error) {
		return strings.Repeat("x", 49), nil
	}, steps.Idempotent(steps.Forever)))}})
	work(t, e)
	r := effStart(t, e, w, 1)
	if info := effState(t, e, r.ID, engine.Uncertain); info.Code != "TOO_LARGE" || !info.DueAt.IsZero() {
		t.Errorf("%+v", info)
	}
	if err := e.Resolve(ctx, r.ID, effPerson, engine.ItHappened("short", "the receipt's number")); err != nil {
		t.Fatal(err)
	}
	if out := effSuccess(t, e, r); out != "short" {
		t.Errorf("got %q", out)
	}
}

// One run's payload that does not decode, of a killed worker: the others are
// taken back and go on, and that one is shown.
func TestCase11(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("recovered")
	second := make(chan struct{})
	began := make(chan struct{}, 20)
	e := effEngine(t, pool, engine.Config{Session: time.Second, Workflows: []steps.Definition{w.Of(steps.New("step", func(ctx context.Context, n int) (int, error) {
		select {
		case <-second:
			return n, nil
		default:
		}
		began <- struct{}{}
		<-ctx.Done()
		return 0, ctx.Err()
	}, steps.RetryUnknown{Attempts: 1}))}})
	work(t, e)
	var runs []engine.Run[int]
	for i := range 6 {
		runs = append(runs, effStart(t, e, w, i))
	}
	for range 6 {
		effSignal(t, "all to begin", began)
	}
	bad := map[int]string{1: `\x`, 2: `\xff00`, 4: `\x7b7d7d`}
	for i, bytes := range bad {
		effExec(t, pool, "UPDATE pawl.run SET input = $2::text::bytea WHERE id = $1", runs[i].ID, bytes)
	}
	close(second)
	effExec(t, pool, "UPDATE pawl.job SET expires_at = pawl.now() - interval '1 second'") // as a killed worker's would
	effExec(t, pool, "UPDATE pawl.session SET expires_at = pawl.now() - interval '1 second'")
	for i, r := range runs {
		out, err := effResult(t, e, r)
		var failed *engine.FailedError
		if _, isBad := bad[i]; isBad {
			if !errors.As(err, &failed) || failed.Code != "DECODE" {
				t.Errorf("run %d: %v", i, err)
			}
			if info := effGet(t, e, r.ID); len(effRows(info, "lapsed")) != 1 {
				t.Errorf("run %d: %v", i, effEvents(info))
			}
		} else if err != nil || out != i {
			t.Errorf("run %d: %d, %v", i, out, err)
		}
	}
}
