package steps

import (
	"errors"
	"fmt"
	"reflect"
)

// Workflow is a contract: a name and the types of input and output. It links
// no step's code, so callers import it without what the steps need. The zero
// Workflow is no contract; make one with [Declare].
type Workflow[I, O any] struct {
	name string
	err  error
}

// Declare makes the contract of a workflow. Names of workflows and steps are
// valid UTF-8 of at most 200 bytes, without control characters, without any of
// / [ ] # and without spaces around them. What is wrong with name or types is
// reported by [Workflow.Err] and by the Err of every [Definition].
func Declare[I, O any](name string) Workflow[I, O] {
	var errs []error
	for _, p := range problems(name, reflect.TypeFor[I](), reflect.TypeFor[O]()) {
		errs = append(errs, fmt.Errorf("workflow %q: %w", name, p))
	}
	return Workflow[I, O]{name: name, err: errors.Join(errs...)}
}

// Name returns the workflow's name.
func (w Workflow[I, O]) Name() string { return w.name }

// Err tells what is wrong with the contract, or nil.
func (w Workflow[I, O]) Err() error {
	if w.name == "" && w.err == nil {
		return errors.New("a zero Workflow: make one with Declare")
	}
	return w.err
}

// problems is what can be wrong with a workflow or a step alone.
func problems(name string, in, out reflect.Type) (problems []error) {
	if err := checkName(name); err != nil {
		problems = append(problems, err)
	}
	if err := checkType(in); err != nil {
		problems = append(problems, fmt.Errorf("input: %w", err))
	}
	if err := checkType(out); err != nil {
		problems = append(problems, fmt.Errorf("output: %w", err))
	}
	return problems
}

// Define draws the workflow's graph. It calls draw once, at once; the order
// of the calls of Do is the sequence, the references are the data. The
// options are defaults for all its steps: a step's own option wins, a field at
// a time for Retry and RetryUnknown.
func (w Workflow[I, O]) Define(draw func(f *Flow, in Ref[I]) Ref[O], opts ...Option) Definition {
	f := newFlow(w.name, w.Err(), opts)
	if draw == nil {
		f.close("the draw function is nil")
		return Definition{f}
	}
	var out Ref[O]
	if !f.draw(func() { out = draw(f, input[I](f)) }) {
		f.close("")
		return Definition{f}
	}
	f.finish(reflect.TypeFor[I](), reflect.TypeFor[O](), out.src, out.boxed())
	return Definition{f}
}

// Of defines the workflow as one step: the plain job.
func (w Workflow[I, O]) Of(step Step[I, O], opts ...Option) Definition {
	return w.Define(func(f *Flow, in Ref[I]) Ref[O] { return step.Do(f, in) }, opts...)
}
