package steps

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Why an attempt's context ended: see [context.Cause]. A body just returns;
// nothing that it reports counts any more after ErrLeaseLost.
var (
	// ErrLeaseLost: the lease expired or another has the job.
	ErrLeaseLost = errors.New("lease lost: the job may be another's now")
	// ErrCancelled: somebody cancelled the run.
	ErrCancelled = errors.New("the run was cancelled")
	// ErrDrained: the worker shuts down; the job is handed back and costs no attempt.
	ErrDrained = errors.New("the worker is draining")
)

// Error is an error with a class. Make one with [Permanent], [Transient],
// [Uncertain], [RetryAfter] or [Snooze]; [Classify] finds it in any chain.
type Error struct {
	Class Class
	Code  string        // for people and programs, at most 64 bytes, upper-case by custom
	Delay time.Duration // until the next attempt; zero: by backoff
	Err   error         // may be nil

	guessed bool // by the defaults
}

// Marked tells whether somebody gave the class; else the defaults of
// [Classify] did.
func (e *Error) Marked() bool { return e != nil && !e.guessed }

// Unwrap returns Err.
func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// Error returns the message of Err, after a code that someone chose.
func (e *Error) Error() string {
	switch {
	case e == nil:
		return "<nil>"
	case e.Err == nil && e.Delay > 0:
		return fmt.Sprintf("%s for %v", e.Code, e.Delay)
	case e.Err == nil:
		return e.Code
	}
	if e.guessed || e.Code == "" || e.Code == ownCode(e.Class) {
		return e.Err.Error()
	}
	if inner := marked(e.Err); inner != nil && inner.Code == e.Code {
		return e.Err.Error() // it is in there already
	}
	return e.Code + ": " + e.Err.Error()
}

const (
	maxCode        = 64 // bytes
	codeRetryAfter = "RETRY_AFTER"
)

// Permanent marks err as one that no further attempt will mend: the step is
// dead at once. In a step with an effect it says also that the effect has not
// happened. An empty code becomes PERMANENT; err may be nil.
func Permanent(code string, err error) error {
	return &Error{Class: ClassPermanent, Code: cleanCode(code, ClassPermanent), Err: err}
}

// Transient marks err as one that will pass: tried again by [Retry]. In a
// step with an effect it says also that the effect has not happened.
func Transient(err error) error {
	return &Error{Class: ClassTransient, Code: ownCode(ClassTransient), Err: err}
}

// Uncertain marks err as one that leaves open whether the effect happened. In
// a step with LookUp or Manual an error without a mark means the same.
func Uncertain(err error) error {
	return &Error{Class: ClassUncertain, Code: ownCode(ClassUncertain), Err: err}
}

// RetryAfter is [Transient] with a time to wait, such as a server asks for.
// Zero or less leaves it to the backoff.
func RetryAfter(d time.Duration, err error) error {
	return &Error{Class: ClassTransient, Code: codeRetryAfter, Delay: max(d, 0), Err: err}
}

// Snooze puts the step off for d. It is no failure and costs no attempt. In a
// step with an effect it says also that the effect has not happened.
func Snooze(d time.Duration) error {
	return &Error{Class: ClassSnooze, Code: ownCode(ClassSnooze), Delay: max(d, 0)}
}

// ownCode is the code of a class that got no other.
func ownCode(c Class) string { return strings.ToUpper(string(c)) }

// cleanCode makes a code fit for a column and a metric.
func cleanCode(code string, c Class) string {
	code = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, strings.TrimSpace(code))
	if len(code) > maxCode {
		code = code[:maxCode]
		for !utf8.ValidString(code) {
			code = code[:len(code)-1]
		}
	}
	if code == "" {
		return ownCode(c)
	}
	return code
}
