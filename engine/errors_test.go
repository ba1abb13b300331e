package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// errOut does not encode, in one of the ways in which that goes wrong.
type errOut struct{ How string }

func (o errOut) MarshalJSON() ([]byte, error) {
	switch o.How {
	case "error":
		return nil, errors.New("no JSON of this")
	case "panic":
		panic("no JSON of this\x00")
	case "bytes":
		return []byte("\"\xff\""), nil
	}
	return []byte(`{}`), nil
}

func (o *errOut) UnmarshalJSON([]byte) error { return nil }

// errNil is what a nil pointer of a user's error type does.
type errNil struct{ text string }

func (e *errNil) Error() string { return e.text }

type errCase struct {
	name  string
	body  func() (errOut, error)
	opts  []steps.Option
	state engine.State // after the first failure
	class string
	code  string
	most  time.Duration // the delay's limits, when it is tried again
	least time.Duration
	says  string // what the record of it says
	spent int    // attempts that count by then
}

func errOf(err error) func() (errOut, error) { return func() (errOut, error) { return errOut{}, err } }

var (
	errPlain = errors.New("something broke")
	errOnce  = steps.Retry{Attempts: 1}
)

func errPg(code string) func() (errOut, error) {
	return errOf(fmt.Errorf("insert: %w", &pgconn.PgError{Code: code, Message: "server says"}))
}

// errCases: an error, its class and what comes of it. Delays by backoff are
// random up to a limit, a second after the first failure.
var errCases = []errCase{
	{name: "unknown", body: errOf(errPlain), state: engine.Scheduled, class: "unknown", code: "UNKNOWN", most: time.Second, says: "something broke", spent: 1},
	{name: "unknown, last", body: errOf(errPlain), opts: []steps.Option{steps.RetryUnknown{Attempts: 1}}, state: engine.Failed, class: "unknown", code: "UNKNOWN", says: "the budget's last: something broke", spent: 1},
	{name: "permanent", body: errOf(steps.Permanent("NO_SUCH_SKU", errPlain)), state: engine.Failed, class: "permanent", code: "NO_SUCH_SKU", says: "something broke", spent: 1},
	{name: "permanent, wrapped", body: errOf(fmt.Errorf("pick: %w", steps.Permanent("NO_SUCH_SKU", errPlain))), state: engine.Failed, class: "permanent", code: "NO_SUCH_SKU", says: "pick: ", spent: 1},
	{name: "permanent, joined", body: errOf(errors.Join(io.EOF, steps.Permanent("JOINED", errPlain))), state: engine.Failed, class: "permanent", code: "JOINED", spent: 1},
	{name: "permanent, no code", body: errOf(steps.Permanent("", nil)), state: engine.Failed, class: "permanent", code: "PERMANENT", spent: 1},
	{name: "permanent, odd code", body: errOf(steps.Permanent("A\x00\xff"+strings.Repeat("é", 60), nil)), state: engine.Failed, class: "permanent", code: "A__" + strings.Repeat("é", 30), spent: 1},
	{name: "transient", body: errOf(steps.Transient(errPlain)), state: engine.Scheduled, class: "transient", code: "TRANSIENT", most: time.Second, spent: 1},
	{name: "transient, last", body: errOf(steps.Transient(errPlain)), opts: []steps.Option{errOnce}, state: engine.Failed, class: "transient", code: "TRANSIENT", says: "1 failures of class transient", spent: 1},
	{name: "retry after", body: errOf(steps.RetryAfter(time.Hour, errPlain)), state: engine.Scheduled, class: "transient", code: "RETRY_AFTER", least: time.Hour, most: time.Hour, spent: 1},
	{name: "retry after 200 years", body: errOf(steps.RetryAfter(200*365*24*time.Hour, errPlain)), state: engine.Scheduled, class: "transient", code: "RETRY_AFTER", least: 99 * 365 * 24 * time.Hour, most: 101 * 366 * 24 * time.Hour, spent: 1},
	{name: "retry after for ever", body: errOf(steps.RetryAfter(math.MaxInt64, errPlain)), state: engine.Scheduled, class: "transient", code: "RETRY_AFTER", least: 99 * 365 * 24 * time.Hour, most: 101 * 366 * 24 * time.Hour, spent: 1},
	{name: "retry after less than nothing", body: errOf(steps.RetryAfter(math.MinInt64, errPlain)), state: engine.Scheduled, class: "transient", code: "RETRY_AFTER", most: time.Second, spent: 1},
	{name: "absurd budget", body: errOf(steps.Transient(errPlain)), opts: []steps.Option{steps.Retry{Attempts: math.MaxInt, Within: steps.Forever, Delay: math.MaxInt64, MaxDelay: math.MaxInt64}}, state: engine.Scheduled, class: "transient", code: "TRANSIENT", most: 101 * 366 * 24 * time.Hour, spent: 1},
	{name: "snooze", body: errOf(steps.Snooze(time.Hour)), state: engine.Scheduled, class: "snooze", code: "SNOOZE", least: time.Hour, most: time.Hour, spent: 0},
	{name: "snooze for no time", body: errOf(steps.Snooze(0)), state: engine.Scheduled, class: "snooze", code: "SNOOZE", least: 100 * time.Millisecond, most: 100 * time.Millisecond, spent: 0},
	{name: "snooze for 200 years", body: errOf(steps.Snooze(200 * 365 * 24 * time.Hour)), state: engine.Scheduled, class: "snooze", code: "SNOOZE", least: 99 * 365 * 24 * time.Hour, most: 101 * 366 * 24 * time.Hour, spent: 0},
	{name: "uncertain in a plain step", body: errOf(steps.Uncertain(errPlain)), state: engine.Uncertain, class: "uncertain", code: "UNCERTAIN", spent: 1},
	{name: "deadline", body: errOf(fmt.Errorf("get: %w", context.DeadlineExceeded)), state: engine.Scheduled, class: "transient", code: "TIMEOUT", most: time.Second, spent: 1},
	{name: "network", body: errOf(&net.OpError{Op: "dial", Err: errPlain}), state: engine.Scheduled, class: "transient", code: "NETWORK", most: time.Second, spent: 1},
	{name: "PostgreSQL 08", body: errPg("08006"), state: engine.Scheduled, class: "transient", code: "08006", most: time.Second, spent: 1},
	{name: "PostgreSQL 40", body: errPg("40P01"), state: engine.Scheduled, class: "transient", code: "40P01", most: time.Second, spent: 1},
	{name: "PostgreSQL 53", body: errPg("53300"), state: engine.Scheduled, class: "transient", code: "53300", most: time.Second, spent: 1},
	{name: "PostgreSQL 57", body: errPg("57P01"), state: engine.Scheduled, class: "transient", code: "57P01", most: time.Second, spent: 1},
	{name: "PostgreSQL 23", body: errPg("23505"), state: engine.Scheduled, class: "unknown", code: "23505", most: time.Second, spent: 1},
	{name: "panic", body: func() (errOut, error) { panic("oh no") }, state: engine.Scheduled, class: "unknown", code: "PANIC", most: time.Second, says: "errors_test.go", spent: 1},
	{name: "panic with nil", body: func() (errOut, error) { panic(nil) }, state: engine.Scheduled, class: "unknown", code: "PANIC", most: time.Second, spent: 1},
	// What was thrown is no word on what happened: its class does not count.
	{name: "panic with an error", body: func() (errOut, error) { panic(steps.Permanent("THROWN", errPlain)) }, state: engine.Scheduled, class: "unknown", code: "PANIC", most: time.Second, says: "THROWN", spent: 1},
	{name: "goexit", body: func() (errOut, error) { runtime.Goexit(); return errOut{}, nil }, state: engine.Scheduled, class: "unknown", code: "GOEXIT", most: time.Second, spent: 1},
	{name: "a nil pointer as an error", body: func() (errOut, error) { var e *errNil; return errOut{}, e }, state: engine.Scheduled, class: "unknown", code: "PANIC", most: time.Second, spent: 1},
	{name: "output that does not encode", body: func() (errOut, error) { return errOut{"error"}, nil }, state: engine.Failed, class: "permanent", code: "ENCODE", says: "no JSON of this", spent: 1},
	{name: "output that panics", body: func() (errOut, error) { return errOut{"panic"}, nil }, state: engine.Failed, class: "permanent", code: "ENCODE", says: "no JSON of this", spent: 1},
	{name: "output of bad bytes", body: func() (errOut, error) { return errOut{"bytes"}, nil }, state: engine.Failed, class: "permanent", code: "ENCODE", spent: 1},
	{name: "classified", body: errOf(errPlain), opts: []steps.Option{steps.Classifier(func(err error) error { return steps.Permanent("BY_RULE", err) })}, state: engine.Failed, class: "permanent", code: "BY_RULE", spent: 1},
	{name: "a classifier without an opinion", body: errOf(errPlain), opts: []steps.Option{steps.Classifier(func(error) error { return nil })}, state: engine.Scheduled, class: "unknown", code: "UNKNOWN", most: time.Second, spent: 1},
	{name: "a classifier that panics", body: errOf(errPlain), opts: []steps.Option{steps.Classifier(func(error) error { panic("rule 7") })}, state: engine.Scheduled, class: "unknown", code: "PANIC", most: time.Second, says: "something broke", spent: 1},
	{name: "a classifier that returns a nil pointer", body: errOf(errPlain), opts: []steps.Option{steps.Classifier(func(error) error { var e *errNil; return e })}, state: engine.Scheduled, class: "unknown", code: "PANIC", most: time.Second, says: "something broke", spent: 1},
}

func TestErrorTable(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	noteDelays(t, pool)
	var defs []steps.Definition
	var usual []time.Duration // by backoff, where nothing else is asked for
	contract := func(i int) steps.Workflow[int, errOut] { return steps.Declare[int, errOut](fmt.Sprint("errors-", i)) }
	for i, c := range errCases {
		defs = append(defs, contract(i).Of(steps.New("step", func(context.Context, int) (errOut, error) { return c.body() }, c.opts...)))
		if err := defs[i].Err(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
	e := effEngine(t, pool, engine.Config{Workflows: defs})
	ids := make([]string, len(errCases))
	for i := range errCases {
		ids[i] = effStart(t, e, contract(i), i).ID
	}
	work(t, e)
	for i, c := range errCases {
		// What is tried again at once may be further by now: its first row says all.
		var info engine.RunInfo
		effUntil(t, c.name, func() bool { info = effGet(t, e, ids[i]); return len(info.History) > 0 })
		h := info.History[0]
		if h.Class != c.class || h.Code != c.code || h.Attempt != 1 || !strings.Contains(h.Reason, c.says) {
			t.Errorf("%s: recorded as %s, %s, attempt %d: %s", c.name, h.Class, h.Code, h.Attempt, h.Reason)
		}
		to := map[engine.State]string{engine.Scheduled: "pending", engine.Failed: "dead", engine.Uncertain: "uncertain"}[c.state]
		if h.To != to {
			t.Errorf("%s: it is %s, not %s", c.name, h.To, to)
		}
		if c.state != engine.Scheduled {
			if info.State != c.state || info.Jobs[0].Attempt != c.spent || !info.DueAt.IsZero() {
				t.Errorf("%s: %s, due at %v, %d attempts", c.name, info.State, info.DueAt, info.Jobs[0].Attempt)
			}
			continue
		}
		d := delays(t, pool, ids[i], h.Event)[0]
		if d < c.least || d > c.most {
			t.Errorf("%s: again after %v, not %v to %v", c.name, d, c.least, c.most)
		}
		if c.least == 0 && c.most == time.Second {
			usual = append(usual, d)
		}
		if len(info.History) == 1 && info.Jobs[0].State == "pending" && info.Jobs[0].Attempt != c.spent {
			t.Errorf("%s: %d attempts", c.name, info.Jobs[0].Attempt)
		}
	}
	spreadUpTo(t, "by default", usual, time.Second)
}
