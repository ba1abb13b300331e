package engine

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawlworks/pawl/schema"
)

// Errors that callers test for with errors.Is.
var (
	// ErrUnknownWorkflow: no process that has the workflow's definition has ever started on this database.
	ErrUnknownWorkflow = errors.New("pawl: unknown workflow")
	// ErrKeyConflict: the key has started a run with another input. The error comes with that run.
	ErrKeyConflict = errors.New("pawl: the key has started a run with another input")
	// ErrNotFound: there is no such run, or no run of that key.
	ErrNotFound = errors.New("pawl: not found")
	// ErrTooLarge: a payload is larger than Config.MaxPayload. Nothing was stored.
	ErrTooLarge = errors.New("pawl: payload too large")
	// ErrState: the run is not in a state in which that can be done.
	ErrState = errors.New("pawl: not in this state")
	// ErrSchema: the database's schema does not fit this release; the message says what to do.
	ErrSchema = schema.ErrSchema
	// ErrCancelled: Wait's answer for a run that was cancelled.
	ErrCancelled = errors.New("pawl: the run was cancelled")
)

// FailedError is Wait's answer for a run that failed: its step is dead, and
// Replay can open it again.
type FailedError struct {
	Run, Workflow string
	Step          string
	Attempt       int
	Code, Reason  string
	Owner         string // who must look: steps.Owner
}

func (e *FailedError) Error() string {
	who := "see it"
	if e.Owner != "" {
		who = e.Owner + " must see it"
	}
	return fmt.Sprintf("pawl: run %s of %q failed at step %q, attempt %d: %s: %s (%s, mend the cause, then Replay)",
		e.Run, e.Workflow, e.Step, e.Attempt, e.Code, e.Reason, who)
}

// maxReason caps the text of an error that is stored, in bytes.
const maxReason = 8 << 10

// clean makes a text that PostgreSQL takes: valid UTF-8 without NUL, at most most bytes.
func clean(s string, most int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) > most {
		s = s[:most]
		for !utf8.ValidString(s) {
			s = s[:len(s)-1]
		}
	}
	return s
}

// badText says what is wrong with a text that a caller gave, or returns nil.
func badText(what, s string, most int) error {
	switch {
	case !utf8.ValidString(s):
		return fmt.Errorf("pawl: the %s %q is not valid UTF-8", what, s)
	case strings.ContainsRune(s, 0):
		return fmt.Errorf("pawl: the %s %q has a NUL", what, s)
	case len(s) > most:
		return fmt.Errorf("pawl: the %s has %d bytes, more than %d", what, len(s), most)
	}
	return nil
}

// sqlState is the SQLSTATE of a database's answer, or "".
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// refused tells whether PostgreSQL refuses a value: the same again would fail again.
func refused(err error) bool {
	s := sqlState(err)
	if s == "" || len(s) != 5 {
		var t interface{ Timeout() bool }
		// Not from the server, and not of the network: pgx could not encode an argument.
		return strings.Contains(fmt.Sprint(err), "failed to encode args") && !errors.As(err, &t)
	}
	switch s[:2] {
	case "22", "23", "54":
		return !noPartition(err)
	}
	return false
}

// noPartition tells whether a row of history has no partition to go to. Its
// SQLSTATE is that of a CHECK, but it names none, and the same works later.
func noPartition(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23514" && pg.ConstraintName == ""
}
