package peers_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlworks/pawl/bench/internal/peers"
)

// TestStopHalfWay: after a stop no step begins, and what was under way is
// finished by the next Work.
func TestStopHalfWay(t *testing.T) {
	t.Parallel()
	const n = 30
	for i, c := range peers.All() {
		t.Run(c.Name+", "+c.Variant, func(t *testing.T) {
			t.Parallel()
			var begun, stopped atomic.Int32
			s := open(t, fmt.Sprintf("half_%d", i), c, func(string, int) {
				begun.Add(1)
				time.Sleep(10 * time.Millisecond)
				stopped.Add(1)
			}, 5*time.Second)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := s.Setup(ctx); err != nil {
				t.Fatal(err)
			}
			if err := s.Enqueue(ctx, n); err != nil {
				t.Fatal(err)
			}
			stop, err := s.Work(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for begun.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			stop()
			at := begun.Load()
			if stopped.Load() != at {
				t.Errorf("of %d steps only %d had ended when stop returned", at, stopped.Load())
			}
			time.Sleep(100 * time.Millisecond)
			if now := begun.Load(); now != at {
				t.Errorf("%d steps began after the stop", now-at)
			}
			if stop, err = s.Work(ctx); err != nil {
				t.Fatal(err)
			}
			defer stop()
			if err := s.Wait(ctx, n); err != nil {
				t.Error(err)
			}
			t.Logf("%d steps before the stop, %d in all, for %d", at, begun.Load(), n*steps)
		})
	}
}
