//go:build unix

package pawl_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
)

// crashPollingAlone: nobody hears a wake-up, and what is committed is worked
// off all the same, from queue to queue between two processes.
func crashPollingAlone(t *testing.T) {
	t.Run("nobody_listens", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, "relay")
		silent, err := engine.New(t.Context(), s.pool, engine.Config{NoListen: true})
		if err != nil {
			t.Fatal(err)
		}
		s.e = silent
		s.relay(true)
		var listening int
		s.scan("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN pawl'", nil, &listening)
		if listening != 0 {
			t.Errorf("%d listen", listening)
		}
	})
	t.Run("listeners_are_cut", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, "relay")
		ctx, stop := context.WithCancel(t.Context())
		cuts := make(chan int, 1)
		go func() {
			n := 0
			for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) { // faster than anybody connects
				var cut int
				if err := s.pool.QueryRow(ctx, `
					SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
					 WHERE datname = current_database() AND query = 'LISTEN pawl'`).Scan(&cut); err == nil {
					n += cut
				}
			}
			cuts <- n
		}()
		s.relay(false)
		stop()
		if n := <-cuts; n < 2 {
			t.Errorf("%d listeners were cut", n)
		} else {
			t.Logf("%d listeners were cut", n)
		}
	})
}

// relay runs workflows whose steps are in two queues, each served by a process
// that knows nothing of the other.
func (s *stage) relay(silent bool) {
	s.Helper()
	for _, q := range relayQueues {
		s.worker(role{Name: q, Queues: []string{q}, NoListen: silent})
	}
	var runs []engine.Run[receipt]
	for i := range 20 {
		r, err := engine.Start(s.Context(), s.e, contract("relay"), order{fmt.Sprint(i)}, engine.Silently())
		if err != nil {
			s.Fatal(err)
		}
		runs = append(runs, r)
	}
	for _, r := range runs {
		s.wait(r)
	}
	for leg := range relayLegs {
		for _, c := range s.target.of("effects", at(fmt.Sprint("leg-", leg), "")) {
			if c.Worker != relayQueues[leg%2] {
				s.Errorf("leg %d was run by %s", leg, c.Worker)
			}
		}
	}
}
