package peers_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlworks/pawl/bench/internal/peers"
	"github.com/pawlworks/pawl/bench/internal/system"
)

func TestContestants(t *testing.T) {
	t.Parallel()
	if len(peers.All()) < 6 {
		t.Fatal("contestants are missing")
	}
	for i, c := range peers.All() {
		t.Run(c.Name+", "+c.Variant, func(t *testing.T) {
			t.Parallel()
			l := &ledger{seen: map[string]int{}}
			s := open(t, fmt.Sprintf("peer_%d", i), c, l.note, 0)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			exercise(ctx, t, s, l, c.Direct)
		})
	}
}

func exercise(ctx context.Context, t *testing.T, s system.System, l *ledger, direct bool) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Setup(ctx))
	must(s.Setup(ctx)) // as every process does
	must(s.Enqueue(ctx, runs))
	if !direct {
		l.expect(t, 0) // nothing works yet
	}
	for again := range 2 {
		stop, err := s.Work(ctx)
		must(err)
		_, err = s.Work(ctx)
		if err == nil {
			t.Error("it works twice")
		}
		must(s.Wait(ctx, runs+again*2))
		must(s.RunOne(ctx))
		must(s.Wait(ctx, runs+again*2+1))
		stop()
		stop()
		l.expect(t, runs+again*2+1)
		must(s.(system.Starter).StartOne(ctx)) // the next round works on it
	}
	if s.RunOne(ctx) == nil {
		t.Error("RunOne without Work")
	}
	done, err := s.Done(ctx)
	must(err)
	if done != runs+3 && !direct {
		t.Errorf("%d runs done, not %d", done, runs+3)
	}
	stop, err := s.Work(ctx)
	must(err)
	must(s.Wait(ctx, runs+4))
	stop()
	l.expect(t, runs+4)
}

// TestResume: a resumable job that broke off in its second step goes on there,
// with the first step's output.
func TestResume(t *testing.T) {
	t.Parallel()
	for i, c := range peers.All() {
		if c.Variant != "resumable" {
			continue
		}
		l := &ledger{seen: map[string]int{}}
		var broken atomic.Bool
		s := open(t, fmt.Sprintf("resume_%d", i), c, func(_ string, step int) {
			l.note("run", step)
			if step == 1 && !broken.Swap(true) {
				panic("on purpose")
			}
		}, 5*time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(s.Setup(ctx), s.Enqueue(ctx, 1)); err != nil {
			t.Fatal(err)
		}
		stop, err := s.Work(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		if err := s.Wait(ctx, 1); err != nil {
			t.Fatal(err)
		}
		if want := map[string]int{"run/0": 1, "run/1": 2, "run/2": 1}; !maps.Equal(l.seen, want) {
			t.Errorf("%v, not %v", l.seen, want)
		}
	}
}
