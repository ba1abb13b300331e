package steps

import (
	"context"

	"github.com/pawlworks/pawl/internal/plan"
)

// IdempotencyKey returns the key of the step's effect: the same in every
// attempt and for its look-up, different for every place of every run. It is empty
// outside of an attempt; tests of a step's function give one with [WithKey].
func IdempotencyKey(ctx context.Context) string {
	if a := plan.FromContext(ctx); a != nil && a.Key != nil {
		return a.Key()
	}
	return ""
}

// WithKey returns a context in which [IdempotencyKey] is key: for tests that
// call a step's function themselves.
func WithKey(ctx context.Context, key string) context.Context {
	a := plan.Attempt{}
	if outer := plan.FromContext(ctx); outer != nil {
		a = *outer
	}
	a.Key = func() string { return key }
	return plan.WithAttempt(ctx, &a)
}

// Acknowledge reports progress without a cursor, because downstream has
// answered: it renews the lease. On an error the body should return it. Outside
// of an attempt it does nothing.
func Acknowledge(ctx context.Context) error {
	if a := plan.FromContext(ctx); a != nil && a.Acknowledge != nil {
		return a.Acknowledge(ctx)
	}
	return nil
}

// LateResult returns what an earlier attempt returned after its lease was
// lost, if it did: evidence for a look-up, no proof. It is false outside of a
// look-up and for a result that O can't hold.
func LateResult[O any](ctx context.Context) (O, bool) {
	var zero O
	a := plan.FromContext(ctx)
	if a == nil || a.Late == nil {
		return zero, false
	}
	b, ok := a.Late()
	if !ok {
		return zero, false
	}
	v, err := plan.Decode[O](b)
	return v, err == nil
}
