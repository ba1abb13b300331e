package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

var beating = steps.Declare[int, int]("beating")

// TestCase23 drops nothing but heartbeats, those of leases or those of the
// session, by cuts or into a black hole. The attempt must be told that its
// lease is lost although it makes progress and everything else works; what it
// returns then does not count; and the worker carries on when they pass again.
func TestCase23(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		drop     string
		how      pgproxy.Action
		session  time.Duration
		sessions int
	}{
		"leases cut":      {"Renew", pgproxy.CutBefore, time.Minute, 1},
		"leases stalled":  {"Renew", pgproxy.Stall, time.Minute, 1},
		"session cut":     {"Pulse", pgproxy.CutBefore, 6 * time.Second, 2},
		"session stalled": {"Pulse", pgproxy.Stall, 6 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			pool, proxy := envProxied(t, dsn)
			log := &envLog{}
			type ending struct {
				cause error
				at    time.Time
			}
			told := make(chan ending, 10)
			var healed atomic.Bool
			e := envEngine(t, pool, engine.Config{Session: c.session, Logger: log.logger(), Workflows: []steps.Definition{
				beating.Of(steps.New("step", func(ctx context.Context, n int) (int, error) {
					if n > 0 || healed.Load() {
						return n + 1, nil
					}
					for ctx.Err() == nil {
						_ = steps.Acknowledge(ctx)
						select {
						case <-ctx.Done():
						case <-time.After(20 * time.Millisecond): // downstream answers at its pace
						}
					}
					told <- ending{context.Cause(ctx), time.Now()}
					return -1, nil // too late to count
				}, steps.Lease(6*time.Second), steps.Heartbeat(200*time.Millisecond)))}})
			run := effStart(t, e, beating, 0)
			work(t, e)
			effUntil(t, "the step runs", func() bool {
				return effGet(t, e, run.ID).State == engine.Running && len(effGet(t, e, run.ID).Jobs) == 1 && effGet(t, e, run.ID).Jobs[0].Attempt == 1
			})
			proxy.OnExecute(func(sql string) pgproxy.Action {
				if envStatement(sql, c.drop) {
					return c.how
				}
				return pgproxy.Pass
			})
			var end ending
			select {
			case end = <-told:
				if !errors.Is(end.cause, steps.ErrLeaseLost) {
					t.Errorf("cancelled with %v", end.cause)
				}
			case <-time.After(envPatience):
				t.Fatal("the zombie lives on")
			}
			if proxy.Fired(c.how) == 0 {
				t.Error("no heartbeat was dropped")
			}
			healed.Store(true)
			proxy.OnExecute(nil)
			proxy.Release()
			if out := effSuccess(t, e, run); out != 1 {
				t.Errorf("got %d", out)
			}
			if out := effSuccess(t, e, effStart(t, e, beating, 5)); out != 6 {
				t.Errorf("got %d", out)
			}
			info := effGet(t, e, run.ID)
			n := len(info.History)
			if n < 2 || info.History[0].Event != "lapsed" || info.History[n-1].Event != "completed" {
				t.Errorf("history: %+v", info.History)
			}
			if taken := info.History[0].EndedAt; !end.at.Before(taken) { // a tenth of the time is the margin
				t.Errorf("told only %v after the job was taken back", end.at.Sub(taken))
			}
			if got := log.said("pawl: working"); got < c.sessions {
				t.Errorf("%d sessions:\n%s", got, log.last(20))
			}
			if c.sessions > 1 && info.History[0].Owner == info.History[n-1].Owner {
				t.Error("it went on under the session that it had lost")
			}
		})
	}
}

// TestCase23Idle drops the session's heartbeats while the worker holds nothing,
// until the session has lapsed, and only then gives it work. It must not take
// any under a session that it can't trust: that would be lost as soon as begun.
func TestCase23Idle(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	pool, proxy := envProxied(t, dsn)
	direct := envPool(t, dsn)
	var calls atomic.Int64
	e := envEngine(t, pool, engine.Config{Session: 2 * time.Second, Logger: (&envLog{}).logger(), Workflows: []steps.Definition{
		beating.Of(steps.New("step", func(_ context.Context, n int) (int, error) { calls.Add(1); return n + 1, nil }))}})
	work(t, e)
	effSuccess(t, e, effStart(t, e, beating, 1))
	proxy.OnExecute(func(sql string) pgproxy.Action {
		if envStatement(sql, "Pulse") {
			return pgproxy.CutBefore
		}
		return pgproxy.Pass
	})
	effUntil(t, "the session lapses", func() bool {
		return effScan[bool](t, direct, "SELECT max(expires_at) < clock_timestamp() FROM pawl.session")
	})
	run := effStart(t, e, beating, 2)
	was := proxy.Fired(pgproxy.CutBefore)
	effUntil(t, "the claimer had its chance", func() bool { return proxy.Fired(pgproxy.CutBefore) > was+5 })
	if calls.Load() != 1 {
		t.Error("the step ran under a session that had lapsed")
	}
	proxy.OnExecute(nil)
	if out := effSuccess(t, e, run); out != 3 {
		t.Errorf("got %d", out)
	}
	if info := effGet(t, e, run.ID); len(info.History) != 1 || info.History[0].Attempt != 1 {
		t.Errorf("history: %+v", info.History)
	}
}
