package engine

import (
	"fmt"
	"runtime/debug"
)

// runner calls users' code for one executor, in a goroutine beside it: a panic
// or a runtime.Goexit there ends only the call, and becomes its error. The
// goroutine is kept from call to call, with the stack that it has grown.
type runner struct {
	calls   chan func() error // nil: there is no goroutine
	results chan error
}

// protect returns what fn returns, or thrown.
func (r *runner) protect(fn func() error) error {
	if r.calls == nil {
		r.calls, r.results = make(chan func() error), make(chan error, 1)
		go serve(r.calls, r.results)
	}
	r.calls <- fn
	err := <-r.results
	if _, ended := err.(thrown); ended {
		r.stop()
	}
	return err
}

// stop ends the goroutine; the next call has a new one.
func (r *runner) stop() {
	if r.calls != nil {
		close(r.calls)
		r.calls = nil
	}
}

func serve(calls <-chan func() error, results chan<- error) {
	for fn := range calls {
		returned := false
		func() {
			defer catch(&returned, results)
			err := fn()
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
