package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

var duel = steps.Declare[int, int]("duel")

// TestCase17 holds the completion of a worker's step until the job is
// another's, who finishes the run or not, and lets it go on then. Its write
// must be refused, and it must stop: no later step runs there.
func TestCase17(t *testing.T) {
	t.Parallel()
	for name, finished := range map[string]bool{"the winner is done": true, "the winner is at the next step": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			define := func(tag int, first, second *atomic.Int64, gate <-chan struct{}) steps.Definition {
				one := steps.New("one", func(_ context.Context, n int) (int, error) { first.Add(1); return n + tag, nil })
				two := steps.New("two", func(ctx context.Context, n int) (int, error) {
					second.Add(1)
					select {
					case <-gate:
					case <-ctx.Done():
					}
					return n, ctx.Err()
				})
				return duel.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] { return two.Do(f, one.Do(f, in)) })
			}
			open := make(chan struct{})
			close(open)
			gate := make(chan struct{})
			if finished {
				close(gate)
			}

			var loserOne, loserTwo, winnerOne, winnerTwo atomic.Int64
			pool, proxy := envProxied(t, dsn)
			log := &envLog{}
			loser := envEngine(t, pool, engine.Config{Session: 4 * time.Second, Logger: log.logger(),
				Workflows: []steps.Definition{define(1, &loserOne, &loserTwo, open)}})
			stalled := make(chan struct{})
			var armed atomic.Bool
			armed.Store(true)
			proxy.OnExecute(func(sql string) pgproxy.Action {
				if envStatement(sql, "Transition") && armed.Swap(false) {
					defer close(stalled)
					proxy.StallAll() // the whole process is cut off, heartbeats too
					return pgproxy.Stall
				}
				return pgproxy.Pass
			})
			run := effStart(t, loser, duel, 0)
			stop := work(t, loser)
			select {
			case <-stalled:
			case <-time.After(envPatience):
				t.Fatal("the loser never completed its step")
			}

			winner := envEngine(t, envPool(t, dsn), engine.Config{Workflows: []steps.Definition{define(10, &winnerOne, &winnerTwo, gate)}})
			work(t, winner)
			effUntil(t, "the winner reaches the second step", func() bool { return winnerTwo.Load() == 1 })
			mine, err := engine.Handle(context.Background(), winner, duel, run.ID)
			if err != nil {
				t.Fatal(err)
			}
			if finished {
				effSuccess(t, winner, mine)
			}
			proxy.Release() // the loser's write arrives only now
			effUntil(t, "the loser lives on, under another owner", func() bool { return log.said("pawl: working") > 1 })
			stop() // waits for all that it has under way
			if !finished {
				close(gate)
			}
			if out := effSuccess(t, winner, mine); out != 10 {
				t.Errorf("the result is %d: not the winner's", out)
			}
			if loserOne.Load() != 1 || loserTwo.Load() != 0 || winnerOne.Load() != 1 || winnerTwo.Load() != 1 {
				t.Errorf("calls: loser %d and %d, winner %d and %d", loserOne.Load(), loserTwo.Load(), winnerOne.Load(), winnerTwo.Load())
			}
			info := effGet(t, winner, run.ID)
			if len(info.History) != 3 || info.History[0].Event != "lapsed" || info.History[1].Owner != info.History[2].Owner ||
				info.History[0].Owner == info.History[1].Owner {
				t.Errorf("history: %+v", info.History)
			}
		})
	}
}
