package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// Work must end when its drain is over, also when the database is away and a
// body that has begun an effect ignores its context.
func TestFaultDrainWithoutDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool, proxy := effProxy(t, url)
	w := steps.Declare[int, int]("deaf")
	begun, gate := make(chan bool, 1), make(chan bool)
	e := effEngine(t, pool, engine.Config{NoListen: true, Drain: 500 * time.Millisecond, Workflows: []steps.Definition{w.Of(steps.New("pay", func(context.Context, int) (int, error) {
		begun <- true
		<-gate
		return 1, nil
	}, steps.Manual()))}})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { defer close(ended); ended <- e.Work(ctx) }()
	effStart(t, e, w, 1)
	effSignal(t, "the body", begun)
	proxy.OnExecute(func(string) pgproxy.Action { return pgproxy.CutBefore }) // the database is away
	stop()
	began := time.Now()
	select {
	case <-ended:
		t.Logf("Work ended after %v", time.Since(began))
	case <-time.After(40 * time.Second):
		t.Error("40 s after its context ended, with 0.5 s to drain, Work has not returned")
	}
	proxy.OnExecute(nil)
	close(gate)
	<-ended
}

// A definite answer is definite, also if it comes in the moment in which the
// drain's patience ends.
func TestFaultDefiniteAtDrain(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("declined")
	begun := make(chan bool, 1)
	e := effEngine(t, pool, engine.Config{Drain: 300 * time.Millisecond, Workflows: []steps.Definition{w.Of(steps.New("pay", func(ctx context.Context, n int) (int, error) {
		begun <- true
		<-ctx.Done() // the provider's answer comes a moment later
		return 0, steps.Permanent("DECLINED", errors.New("the card was declined"))
	}, steps.Manual()))}})
	stop := work(t, e)
	r := effStart(t, e, w, 1)
	effSignal(t, "the body", begun)
	stop()
	info := effGet(t, e, r.ID)
	t.Logf("%s %s", info.State, info.History[len(info.History)-1].Reason)
	if info.State != engine.Failed {
		t.Errorf("an error marked as definite was recorded as %s: %s", info.State, info.History[len(info.History)-1].Reason)
	}
}

// The lane is laid out again when its connection has died while nobody used it.
func faultLane(t *testing.T, kill bool) {
	t.Parallel()
	pool := poolOf(t, pgtest.Database(t), 6)
	observer := effPool(t, pool.Config().ConnString())
	w := steps.Declare[int, int]("shared")
	e := effEngine(t, pool, engine.Config{NoListen: true, Session: 2 * time.Second, Workflows: []steps.Definition{w.Of(steps.New("q", func(ctx context.Context, n int) (int, error) {
		_, err := pool.Exec(ctx, "SELECT pg_sleep(1)")
		return n, err
	}))}})
	work(t, e)
	effUntil(t, "a session", func() bool { return effScan[int](t, observer, "SELECT count(*) FROM pawl.session") == 1 })
	time.Sleep(300 * time.Millisecond)
	if kill { // what idle_session_timeout, a firewall or a fail-over does to it
		effExec(t, observer, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		time.Sleep(1500 * time.Millisecond) // pulses go on
	}
	if s := effScan[int](t, observer, "SELECT count(*) FROM pawl.session"); s != 1 {
		t.Fatalf("%d sessions before it begins", s)
	}
	if _, err := engine.StartMany(context.Background(), effEngine(t, observer, engine.Config{}), w, make([]int, 40)); err != nil {
		t.Fatal(err)
	}
	effUntil(t, "all have ended", func() bool {
		return effScan[int](t, observer, "SELECT count(*) FROM pawl.run WHERE outcome IS NULL") == 0
	})
	if l := effScan[int](t, observer, "SELECT count(*) FROM pawl.history WHERE code = 'LEASE_EXPIRED'"); l != 0 {
		t.Errorf("%d leases lapsed", l)
	}
	if s := effScan[int](t, observer, "SELECT count(*) FROM pawl.session"); s != 1 {
		t.Errorf("%d sessions", s)
	}
}

func TestFaultLaneControl(t *testing.T) { faultLane(t, false) }
func TestFaultLaneDied(t *testing.T)    { faultLane(t, true) }

// What a step shows of its progress must not keep leases from being renewed.
func faultShow(t *testing.T, show bool) {
	t.Parallel()
	pool := poolOf(t, pgtest.Database(t), 6)
	observer := effPool(t, pool.Config().ConnString())
	w := steps.Declare[int, int]("import")
	begun := make(chan bool, 10)
	var bodies atomic.Int64
	e := effEngine(t, pool, engine.Config{NoListen: true, Workflows: []steps.Definition{w.Of(steps.NewLong("rows", func(ctx context.Context, n int, cur *steps.Cursor[int]) (int, error) {
		bodies.Add(1)
		begun <- true
		for i := range int64(150) {
			if show {
				cur.Progress(i, 150)
			}
			if err := steps.Acknowledge(ctx); err != nil {
				return 0, err
			}
			time.Sleep(100 * time.Millisecond)
		}
		return n, nil
	}, steps.Lease(3*time.Second)))}})
	work(t, e)
	r := effStart(t, e, w, 1)
	effSignal(t, "the body", begun)
	var held []*pgxpool.Conn
	for range 5 { // all but the lane: users' code
		c, err := pool.Acquire(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	time.Sleep(13 * time.Second)
	for _, c := range held {
		c.Release()
	}
	seen := effEngine(t, observer, engine.Config{})
	info := effState(t, seen, r.ID, engine.Succeeded, engine.Failed)
	if len(info.History) != 1 || bodies.Load() != 1 {
		t.Errorf("%d bodies, %v", bodies.Load(), effEvents(info))
	}
}

func TestFaultShowControl(t *testing.T) { faultShow(t, false) }
func TestFaultShow(t *testing.T)        { faultShow(t, true) }
