package steps_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawlworks/pawl/steps"
)

var errDeclined = errors.New("card declined")

func TestClassify(t *testing.T) {
	t.Parallel()
	pg := func(code string) error { return fmt.Errorf("insert: %w", &pgconn.PgError{Code: code, Message: "m"}) }
	var n struct{ N int }
	syntax, typ := json.Unmarshal([]byte("<html>"), &n), json.Unmarshal([]byte(`{"N":"x"}`), &n)
	for name, c := range map[string]struct {
		err    error
		class  steps.Class
		code   string
		delay  time.Duration
		marked bool
	}{
		"permanent":        {steps.Permanent("DECLINED", errDeclined), steps.ClassPermanent, "DECLINED", 0, true},
		"wrapped":          {fmt.Errorf("a: %w", fmt.Errorf("b: %w", steps.Permanent("DECLINED", errDeclined))), steps.ClassPermanent, "DECLINED", 0, true},
		"joined":           {errors.Join(errDeclined, steps.Transient(errDeclined)), steps.ClassTransient, "TRANSIENT", 0, true},
		"first of joined":  {errors.Join(steps.Uncertain(errDeclined), steps.Permanent("X", nil)), steps.ClassUncertain, "UNCERTAIN", 0, true},
		"outermost wins":   {fmt.Errorf("a: %w", steps.Uncertain(steps.Permanent("X", errDeclined))), steps.ClassUncertain, "UNCERTAIN", 0, true},
		"over a deadline":  {steps.Permanent("SLOW", context.DeadlineExceeded), steps.ClassPermanent, "SLOW", 0, true},
		"under a deadline": {errors.Join(context.DeadlineExceeded, steps.Permanent("SLOW", nil)), steps.ClassPermanent, "SLOW", 0, true},
		"retry after":      {steps.RetryAfter(time.Minute, errDeclined), steps.ClassTransient, "RETRY_AFTER", time.Minute, true},
		"retry before":     {steps.RetryAfter(-time.Minute, errDeclined), steps.ClassTransient, "RETRY_AFTER", 0, true},
		"snooze":           {steps.Snooze(time.Hour), steps.ClassSnooze, "SNOOZE", time.Hour, true},
		"snooze back":      {steps.Snooze(-time.Hour), steps.ClassSnooze, "SNOOZE", 0, true},
		"by hand":          {&steps.Error{Class: steps.ClassUnknown, Code: " ODD\n", Delay: -1, Err: errDeclined}, steps.ClassUnknown, "ODD", 0, true},
		"bare struct":      {&steps.Error{Err: steps.Transient(nil)}, steps.ClassTransient, "TRANSIENT", 0, true},
		"odd class":        {&steps.Error{Class: "odd", Err: context.DeadlineExceeded}, steps.ClassTransient, "TIMEOUT", 0, false},
		"nil struct":       {fmt.Errorf("a: %w", (*steps.Error)(nil)), steps.ClassUnknown, "UNKNOWN", 0, false},
		"deadline":         {fmt.Errorf("call: %w", context.DeadlineExceeded), steps.ClassTransient, "TIMEOUT", 0, false},
		"os deadline":      {os.ErrDeadlineExceeded, steps.ClassTransient, "TIMEOUT", 0, false},
		"net time-out":     {&url.Error{Op: "Get", URL: "u", Err: &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}}, steps.ClassTransient, "TIMEOUT", 0, false},
		"etimedout":        {syscall.ETIMEDOUT, steps.ClassTransient, "TIMEOUT", 0, false},
		"refused":          {&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, steps.ClassTransient, "NETWORK", 0, false},
		"bare refused":     {syscall.ECONNREFUSED, steps.ClassTransient, "NETWORK", 0, false},
		"reset":            {fmt.Errorf("x: %w", syscall.ECONNRESET), steps.ClassTransient, "NETWORK", 0, false},
		"pipe":             {syscall.EPIPE, steps.ClassTransient, "NETWORK", 0, false},
		"unexpected end":   {io.ErrUnexpectedEOF, steps.ClassTransient, "NETWORK", 0, false},
		"hung up":          {&url.Error{Op: "Post", URL: "u", Err: io.EOF}, steps.ClassTransient, "NETWORK", 0, false},
		"end of file":      {io.EOF, steps.ClassUnknown, "UNKNOWN", 0, false},
		"dns":              {&net.DNSError{Err: "no such host", Name: "x"}, steps.ClassTransient, "NETWORK", 0, false},
		"pg connect":       {fmt.Errorf("x: %w", &pgconn.ConnectError{Config: &pgconn.Config{}}), steps.ClassTransient, "NETWORK", 0, false},
		"pg connection":    {pg("08006"), steps.ClassTransient, "08006", 0, false},
		"pg serialization": {pg("40001"), steps.ClassTransient, "40001", 0, false},
		"pg resources":     {pg("53300"), steps.ClassTransient, "53300", 0, false},
		"pg shutdown":      {pg("57P01"), steps.ClassTransient, "57P01", 0, false},
		"pg unique":        {pg("23505"), steps.ClassUnknown, "23505", 0, false},
		"pg syntax":        {pg("42601"), steps.ClassUnknown, "42601", 0, false},
		"pg without code":  {pg(""), steps.ClassUnknown, "UNKNOWN", 0, false},
		"pg over time-out": {errors.Join(pg("23505"), context.DeadlineExceeded), steps.ClassUnknown, "23505", 0, false},
		"json syntax":      {fmt.Errorf("x: %w", syntax), steps.ClassUnknown, "UNKNOWN", 0, false},
		"json type":        {typ, steps.ClassUnknown, "UNKNOWN", 0, false},
		"cancelled":        {context.Canceled, steps.ClassUnknown, "UNKNOWN", 0, false},
		"plain":            {errDeclined, steps.ClassUnknown, "UNKNOWN", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := steps.Classify(c.err)
			if e.Class != c.class || e.Code != c.code || e.Delay != c.delay || e.Marked() != c.marked {
				t.Errorf("got %s %s %v marked %v", e.Class, e.Code, e.Delay, e.Marked())
			}
			if again := steps.Classify(e); again.Class != e.Class || again.Code != e.Code || again.Marked() != c.marked {
				t.Errorf("classified again: %+v", again)
			}
			if c.err.Error() != "" && name != "by hand" && e.Error() != c.err.Error() {
				t.Errorf("message %q became %q", c.err.Error(), e.Error())
			}
		})
	}
	if steps.Classify(nil) != nil {
		t.Error("nil has a class")
	}
	if e := steps.Classify(fmt.Errorf("a: %w", steps.Permanent("X", errDeclined))); !errors.Is(e, errDeclined) {
		t.Error("the cause is lost")
	}
}

func TestErrorMessages(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"DECLINED: card declined":         steps.Permanent("DECLINED", errDeclined),
		"PERMANENT":                       steps.Permanent("", nil),
		"NO_FILE":                         steps.Permanent("NO_FILE", nil),
		"card declined":                   steps.Transient(errDeclined),
		"TRANSIENT":                       steps.Transient(nil),
		"UNCERTAIN":                       steps.Uncertain(nil),
		"RETRY_AFTER: card declined":      steps.RetryAfter(0, errDeclined),
		"RETRY_AFTER for 5s":              steps.RetryAfter(5*time.Second, nil),
		"SNOOZE for 1m0s":                 steps.Snooze(time.Minute),
		"SNOOZE":                          steps.Snooze(-1),
		"charge: DECLINED: card declined": steps.Classify(fmt.Errorf("charge: %w", steps.Permanent("DECLINED", errDeclined))),
		"OUTER: INNER: card declined":     steps.Permanent("OUTER", steps.Permanent("INNER", errDeclined)),
		"<nil>":                           (*steps.Error)(nil),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, err := range []error{steps.RetryAfter(-1, nil), steps.Snooze(-1)} {
		if e := err.(*steps.Error); e.Delay != 0 { //nolint:errorlint // as it was made
			t.Errorf("delay %v", e.Delay)
		}
	}
	for _, err := range []error{steps.ErrLeaseLost, steps.ErrCancelled, steps.ErrDrained} {
		if err.Error() == "" || !errors.Is(fmt.Errorf("x: %w", err), err) {
			t.Errorf("%v", err)
		}
	}
}

func TestCodes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "PERMANENT", " \n": "PERMANENT", "declined": "declined", "A\x00B\nC": "A_B_C", "A\xff": "A_", "ÄÖ": "ÄÖ",
		strings.Repeat("x", 100):       strings.Repeat("x", 64),
		"x" + strings.Repeat("é", 100): "x" + strings.Repeat("é", 31),
	} {
		for _, err := range []error{steps.Permanent(in, nil), &steps.Error{Class: steps.ClassPermanent, Code: in}} {
			if got := steps.Classify(err).Code; got != want || !utf8.ValidString(got) {
				t.Errorf("code %q became %q, want %q", in, got, want)
			}
		}
	}
}
