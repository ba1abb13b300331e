package steps

import (
	"fmt"
	"reflect"

	"github.com/pawlworks/pawl/internal/plan"
)

// decode reads a stored value; what does not decode is a permanent error.
func decode[T any](b []byte, what string) (T, error) { return decodeWith(plan.Decode[T], b, what) }

func decodeWith[T any](read func([]byte) (T, error), b []byte, what string) (T, error) {
	v, err := read(b)
	if err != nil {
		return v, Permanent("DECODE", fmt.Errorf("%s: %w", what, err))
	}
	return v, nil
}

// encode writes a value to store; what does not encode is a permanent error.
func encode(v any, what string) ([]byte, error) {
	b, err := plan.Encode(v)
	if err != nil {
		return nil, Permanent("ENCODE", fmt.Errorf("%s: %w", what, err))
	}
	return b, nil
}

// as is v.(T), but a nil is good for an interface type.
func as[T any](v any) (T, error) {
	t, ok := v.(T)
	if !ok && (v != nil || reflect.TypeFor[T]().Kind() != reflect.Interface) {
		return t, fmt.Errorf("the input is %T, not %s", v, reflect.TypeFor[T]())
	}
	return t, nil
}
