package steps

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pawlworks/pawl/internal/plan"
)

// Ref stands for a value that a run will have: its input, a step's output, or
// what a Map makes of them. There is no value in it to look at, so that drawing a
// flow can't depend on one. A Ref is good inside the call of Define that made it.
type Ref[T any] struct {
	src  source
	eval func(plan.Values) (T, error)
}

// source is a Ref without its type.
type source struct {
	flow *Flow
	deps []int // ascending, each once
	bad  *mishap
}

// mishap is why a Ref has no value. It is told where the Ref is used; if it
// never is, when the flow is finished.
type mishap struct {
	text string
	told bool
}

// input is the Ref of the run's input.
func input[T any](f *Flow) Ref[T] {
	return stored[T](f, plan.Input, fmt.Sprintf("the input of workflow %q", f.workflow))
}

// stored is the Ref of a value that the database keeps. It is always decoded
// from there: a run that crashed sees what one that did not has seen.
func stored[T any](f *Flow, node int, what string) Ref[T] {
	return Ref[T]{
		src: source{flow: f, deps: []int{node}},
		eval: func(vals plan.Values) (zero T, err error) {
			b, err := vals(node)
			if err != nil {
				return zero, err
			}
			return decode[T](b, what)
		},
	}
}

func (r Ref[T]) boxed() func(plan.Values) (any, error) {
	if r.eval == nil {
		return nil
	}
	return func(vals plan.Values) (any, error) {
		v, err := r.eval(vals)
		if err != nil {
			return nil, err
		}
		return v, nil
	}
}

// refuses tells why the source can't be used on f, or "".
func (f *Flow) refuses(s source) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return "used after the draw function has returned"
	case s.bad != nil:
		s.bad.told = true
		return s.bad.text
	case s.flow == nil:
		return "a zero Ref has no value: use what Do, Map or the draw function gave"
	case s.flow == f:
		return ""
	case s.flow.workflow == f.workflow:
		return "a Ref of another call of Define has no value here"
	}
	return fmt.Sprintf("a Ref of workflow %q has no value here", s.flow.workflow)
}

// derive is the source of a value made by a function from others.
func derive(what string, nilFn bool, from ...source) source {
	var f *Flow
	for _, s := range from {
		if f == nil && s.flow != nil {
			f = s.flow
		}
	}
	var text string
	if nilFn {
		text = "its function is nil"
	}
	out := source{flow: f}
	for _, s := range from {
		switch {
		case text != "":
		case f == nil && s.bad == nil:
			text = "a zero Ref has no value: use what Do, Map or the draw function gave"
		case f == nil:
			text = s.bad.text
		default:
			text = f.refuses(s)
		}
		out.deps = append(out.deps, s.deps...)
	}
	slices.Sort(out.deps)
	out.deps = slices.Compact(out.deps)
	if text == "" {
		return out
	}
	out.bad = &mishap{text: what + ": " + text}
	if f != nil {
		f.keep(out.bad)
	}
	return out
}

// keep remembers a mishap; after the end there is nobody to tell it later.
func (f *Flow) keep(m *mishap) {
	f.mu.Lock()
	closed := f.closed
	f.mishaps = append(f.mishaps, m)
	f.mu.Unlock()
	if closed {
		f.report("", errors.New(m.text))
	}
}
