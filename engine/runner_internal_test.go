package engine

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/pawlworks/pawl/steps"
)

// What hangs is left behind, what panics ends only its call, and the next call
// is none the worse.
func TestRunner(t *testing.T) {
	t.Parallel()
	r := &runners{}
	defer r.close()
	hung := make(chan struct{})
	defer close(hung)
	ctx, cancel := context.WithCancel(t.Context())
	began := make(chan struct{})
	go func() { <-began; cancel() }()
	if err := r.within(ctx, func() error { close(began); <-hung; return nil }); !errors.Is(err, errLeft) {
		t.Errorf("what hangs: %v", err)
	}
	for _, fn := range []func() error{func() error { panic("x") }, func() error { runtime.Goexit(); return nil }, func() error { panic(nil) }} {
		var ended thrown
		if err := r.protect(fn); !errors.As(err, &ended) {
			t.Errorf("it ended with %v", err)
		}
		if err := r.protect(func() error { return nil }); err != nil {
			t.Errorf("the next: %v", err)
		}
	}
	if err := r.protect(func() error { return steps.ErrDrained }); !errors.Is(err, steps.ErrDrained) {
		t.Errorf("frozen it says %v", err)
	}
}
