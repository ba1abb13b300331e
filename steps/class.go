package steps

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// Class says what an error means for the step's next attempt.
type Class string

// The classes.
const (
	ClassPermanent Class = "permanent" // never again by itself: dead
	ClassTransient Class = "transient" // again, by Retry
	ClassUncertain Class = "uncertain" // the effect may or may not have happened
	ClassSnooze    Class = "snooze"    // not now, and no failure
	ClassUnknown   Class = "unknown"   // again, by RetryUnknown
)

func (c Class) valid() bool {
	switch c {
	case ClassPermanent, ClassTransient, ClassUncertain, ClassSnooze, ClassUnknown:
		return true
	}
	return false
}

// Classify returns err with its class and code. A class that somebody gave
// counts first, wherever in the chain it is; the outermost if there are more,
// the first of those joined side by side. Else the defaults decide:
//
//   - a PostgreSQL error of class 08, 40, 53 or 57 is transient, any other
//     unknown; the code is its SQLSTATE
//   - a deadline or time-out is transient: TIMEOUT
//   - a connection that breaks or is not made is transient: NETWORK
//   - anything else is unknown: UNKNOWN
//
// The message of what it returns is that of err. Classify(nil) is nil.
func Classify(err error) *Error {
	if err == nil {
		return nil
	}
	if e := marked(err); e != nil {
		return &Error{Class: e.Class, Code: cleanCode(e.Code, e.Class), Delay: max(e.Delay, 0), Err: unwrapSame(err, e), guessed: e.guessed}
	}
	class, code := guess(err)
	return &Error{Class: class, Code: code, Err: err, guessed: true}
}

// marked returns the outermost error in the chain that has a class.
func marked(err error) *Error {
	var e *Error
	for errors.As(err, &e) && e != nil {
		if e.Class.valid() {
			return e
		}
		err = e.Err
	}
	return nil
}

// unwrapSame returns what to wrap: err, or what it wraps if it is e itself.
func unwrapSame(err error, e *Error) error {
	if err == error(e) {
		return e.Err
	}
	return err
}

// guess is the defaults. PostgreSQL comes first: it knows best, though a
// ConnectError may be around it.
func guess(err error) (Class, string) {
	var (
		pg      *pgconn.PgError
		timeout net.Error
	)
	switch {
	case errors.As(err, &pg) && pg != nil:
		code := cleanCode(pg.Code, ClassUnknown)
		if len(pg.Code) == 5 {
			switch pg.Code[:2] {
			case "08", "40", "53", "57":
				return ClassTransient, code
			}
		}
		return ClassUnknown, code
	case errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return ClassTransient, "TIMEOUT"
	case network(err):
		return ClassTransient, "NETWORK"
	}
	return ClassUnknown, "UNKNOWN"
}

// network tells whether err is of a connection that broke or was not made.
func network(err error) bool {
	for _, e := range []error{
		io.ErrUnexpectedEOF, net.ErrClosed,
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED,
		syscall.EPIPE, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	var (
		connect *pgconn.ConnectError
		op      *net.OpError
		dns     *net.DNSError
		request *url.Error
	)
	return errors.As(err, &connect) || errors.As(err, &op) || errors.As(err, &dns) ||
		errors.As(err, &request) && errors.Is(request.Err, io.EOF) // the server hung up
}
