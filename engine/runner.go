package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawlworks/pawl/steps"
)

// runners call users' code, in goroutines beside the executors: a panic or a
// runtime.Goexit there ends only the call, and becomes its error. The goroutine
// that has become free last is taken first, with the stack that it has grown.
type runners struct {
	mu     sync.Mutex
	idle   []*runner
	closed bool
}

type runner struct {
	calls   chan func() error
	results chan error
}

// protect returns what fn returns, frozen, or thrown.
func (rs *runners) protect(fn func() error) error { return rs.within(context.Background(), fn) }

// within is protect that does not wait for longer than ctx lasts: the call is
// left to itself then, and what it says or sets is not to be looked at.
func (rs *runners) within(ctx context.Context, fn func() error) error {
	r := rs.take()
	r.calls <- fn
	select {
	case err := <-r.results:
		if _, ended := err.(thrown); ended {
			close(r.calls)
		} else {
			rs.put(r)
		}
		return err
	case <-ctx.Done():
		close(r.calls)
		return errLeft
	}
}

func (rs *runners) take() *runner {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if n := len(rs.idle); n > 0 {
		r := rs.idle[n-1]
		rs.idle = rs.idle[:n-1]
		return r
	}
	r := &runner{make(chan func() error), make(chan error, 1)}
	go serve(r.calls, r.results)
	return r
}

func (rs *runners) put(r *runner) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.closed {
		close(r.calls)
		return
	}
	rs.idle = append(rs.idle, r)
}

// close ends the goroutines that are idle now, and the others when they are.
func (rs *runners) close() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.closed = true
	for _, r := range rs.idle {
		close(r.calls)
	}
	rs.idle = nil
}

var errLeft = errors.New("the call has not returned in time, and was left to itself")

func serve(calls <-chan func() error, results chan<- error) {
	for fn := range calls {
		returned := false
		func() {
			defer catch(&returned, results)
			err := freeze(fn())
			returned = true
			results <- err
		}()
		if !returned {
			return // a panic was caught; the stack is not to be trusted with more
		}
	}
}

// aside is one call that need not be waited for.
func aside(fn func() error) <-chan error {
	result := make(chan error, 1)
	go func() {
		returned := false
		defer catch(&returned, result)
		err := fn()
		returned = true
		result <- err
	}()
	return result
}

// catch tells how a function ended that has not returned.
func catch(returned *bool, result chan<- error) {
	if *returned {
		return
	}
	if p := recover(); p != nil {
		result <- thrown{"PANIC", fmt.Sprintf("panic: %v\n%s", p, debug.Stack())}
		return
	}
	result <- thrown{"GOEXIT", "the step's goroutine was ended by runtime.Goexit"}
}

// thrown is a panic or a Goexit. It wraps nothing, not even an error that was
// thrown: it is of class unknown, and no word on whether an effect took place.
type thrown struct{ code, text string }

func (t thrown) Error() string { return t.text }

// frozen is an error of users' code as it was read once, where a panic ends
// only the attempt: the methods of an error are users' code too, and a nil
// pointer in one is easily made.
type frozen struct {
	text          string
	said          *steps.Error
	drained, lost bool
	pg            *pgconn.PgError
}

func freeze(err error) error {
	switch err.(type) {
	case nil:
		return nil
	case thrown, frozen:
		return err
	}
	f := frozen{said: new(steps.Error), drained: errors.Is(err, steps.ErrDrained), lost: errors.Is(err, steps.ErrLeaseLost)}
	*f.said = *steps.Classify(err)
	f.text = reasonOf(f.said)
	f.said.Err = errors.New(f.text)
	var (
		pg *pgconn.PgError
		t  thrown
	)
	if errors.As(err, &pg) && pg != nil {
		f.pg = &pgconn.PgError{Code: pg.Code}
	}
	if errors.As(err, &t) && !f.said.Marked() { // of a transaction within
		f.said.Code = t.code
	}
	return f
}

func (f frozen) Error() string { return f.text }
func (f frozen) Unwrap() error { return f.said }

func (f frozen) Is(target error) bool {
	return target == steps.ErrDrained && f.drained || target == steps.ErrLeaseLost && f.lost
}

func (f frozen) As(target any) bool {
	pg, ok := target.(**pgconn.PgError)
	if ok && f.pg != nil {
		*pg = f.pg
		return true
	}
	return false
}
