package steps

import "github.com/pawlworks/pawl/internal/plan"

// Map makes one value from another on the way to a step or to the result.
// What fn returns is not stored: fn runs again whenever the value is needed,
// so it must be pure (same input, same output: no clock, no chance, no calls).
func Map[A, O any](a Ref[A], fn func(A) O) Ref[O] {
	return Ref[O]{
		src: derive("Map", fn == nil, a.src),
		eval: func(vals plan.Values) (zero O, err error) {
			va, err := a.eval(vals)
			if err != nil {
				return zero, err
			}
			return fn(va), nil
		},
	}
}

// Map2 is [Map] of two values.
func Map2[A, B, O any](a Ref[A], b Ref[B], fn func(A, B) O) Ref[O] {
	return Ref[O]{
		src: derive("Map2", fn == nil, a.src, b.src),
		eval: func(vals plan.Values) (zero O, err error) {
			va, err := a.eval(vals)
			if err != nil {
				return zero, err
			}
			vb, err := b.eval(vals)
			if err != nil {
				return zero, err
			}
			return fn(va, vb), nil
		},
	}
}

// Map3 is [Map] of three values.
func Map3[A, B, C, O any](a Ref[A], b Ref[B], c Ref[C], fn func(A, B, C) O) Ref[O] {
	return Ref[O]{
		src: derive("Map3", fn == nil, a.src, b.src, c.src),
		eval: func(vals plan.Values) (zero O, err error) {
			va, err := a.eval(vals)
			if err != nil {
				return zero, err
			}
			vb, err := b.eval(vals)
			if err != nil {
				return zero, err
			}
			vc, err := c.eval(vals)
			if err != nil {
				return zero, err
			}
			return fn(va, vb, vc), nil
		},
	}
}
