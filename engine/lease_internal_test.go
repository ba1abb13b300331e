package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawlworks/pawl/steps"
)

// An attempt that is told to stop while its beginning is being written is
// either not begun or not interrupted.
func TestLeaseBegunOrInterrupted(t *testing.T) {
	t.Parallel()
	for range 2000 {
		l := newLease(context.Background(), &grant{mode: modeDo, sent: moments(), term: time.Minute, runtime: time.Minute})
		done := make(chan struct{})
		go func() { l.interrupt(steps.ErrCancelled); close(done) }()
		began := l.beginBody(&grant{})
		<-done
		if interrupted := errors.Is(context.Cause(l.ctx), steps.ErrCancelled); began == interrupted {
			t.Fatalf("begun %v, interrupted %v", began, interrupted)
		}
		l.cancel(nil)
	}
}

// A cap that is shorter than the lease has a margin of its own.
func TestLeaseShortCap(t *testing.T) {
	t.Parallel()
	l := newLease(context.Background(), &grant{mode: modeDo, sent: moments(), term: time.Second, runtime: time.Second})
	defer l.cancel(nil)
	if d := l.bodyTime(); d < 500*time.Millisecond || d > time.Second {
		t.Errorf("of a second the body has %v", d)
	}
	if d := l.trusted(moments()); d < l.bodyTime() || d > time.Second {
		t.Errorf("of a second the lease is trusted for %v", d)
	}
}
