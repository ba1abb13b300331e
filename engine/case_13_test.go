package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pglocal"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

var stranded13 = steps.Declare[int, int]("taken-back-late")

// TestCase13 kills the database whenever recovery is about to take the jobs of
// a dead worker back, before the statement and while its answer is on its way,
// and restarts it: no job may be left behind.
func TestCase13(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := pgtest.Own(t, pglocal.Options{})
	dsn := pgtest.DatabaseOn(t, server)

	// The first worker leases everything, and then its network is gone.
	lost, network := envProxied(t, dsn)
	var taken atomic.Int64
	block := func(ctx context.Context, n int) (int, error) {
		taken.Add(1)
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}
	dead := envEngine(t, lost, engine.Config{Slots: 200, Session: 4 * time.Second, Logger: (&envLog{}).logger(),
		Workflows: []steps.Definition{stranded13.Of(steps.New("step", block))}})
	runs, err := engine.StartMany(ctx, dead, stranded13, make([]int, 150))
	if err != nil {
		t.Fatal(err)
	}
	stopDead := work(t, dead)
	effUntil(t, "all jobs are leased", func() bool { return taken.Load() >= int64(len(runs)) })
	network.StallAll()

	pool, proxy := envProxied(t, dsn)
	log := &envLog{}
	e := envEngine(t, pool, engine.Config{Session: time.Second, Logger: log.logger(),
		Workflows: []steps.Definition{stranded13.Of(steps.New("step", func(_ context.Context, n int) (int, error) { return 7, nil }))}})
	kills := make(chan struct{}, 1)
	var killed atomic.Int64
	proxy.OnExecute(func(sql string) pgproxy.Action {
		if !envStatement(sql, "CloseLapsed", "Recover") || killed.Load() >= 3 {
			return pgproxy.Pass
		}
		select {
		case kills <- struct{}{}: // one at a time
			killed.Add(1)
			if envStatement(sql, "Recover") {
				return pgproxy.CutAfter // it has been done, and nobody was told
			}
			return pgproxy.CutBefore
		default:
			return pgproxy.Pass
		}
	})
	done := make(chan struct{})
	killer := make(chan struct{})
	go func() {
		defer close(killer)
		for {
			select {
			case <-done:
				return
			case <-kills:
			}
			server.Kill()
			ctx, cancel := context.WithTimeout(ctx, envPatience)
			if err := server.Restart(ctx); err != nil {
				t.Error(err)
			}
			cancel()
		}
	}()
	defer func() { close(done); <-killer }()
	work(t, e)
	for _, r := range runs {
		r, err := engine.Handle(ctx, e, stranded13, r.ID)
		for err != nil { // the database is being killed
			time.Sleep(50 * time.Millisecond)
			r, err = engine.Handle(ctx, e, stranded13, r.ID)
		}
		if out := effSuccess(t, e, r); out != 7 {
			t.Fatal(out)
		}
	}
	if killed.Load() == 0 {
		t.Error("recovery was never hit")
	}
	network.Release()
	stopDead()
}
