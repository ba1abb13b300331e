package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// Small pools, with everything in one flow.
func TestFaultSmallPools(t *testing.T) {
	for _, conns := range []int32{1, 2, 3} {
		for _, engines := range []int{1, 2} {
			t.Run(fmt.Sprint(conns, " ", engines), func(t *testing.T) {
				t.Parallel()
				url := pgtest.Database(t)
				pool, observer := poolOf(t, url, conns), effPool(t, url)
				effExec(t, observer, "CREATE TABLE public.l (n int)")
				w := steps.Declare[int, int]("mixed")
				tx := steps.NewTx("tx", func(ctx context.Context, tx pgx.Tx, n int) (int, error) {
					_, err := tx.Exec(ctx, "INSERT INTO public.l VALUES ($1)", n)
					return n, err
				})
				long := steps.NewLong("long", func(ctx context.Context, n int, cur *steps.Cursor[int]) (int, error) {
					for p := cur.At(); p < 3; p++ {
						if err := cur.CommitTx(ctx, p+1, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "INSERT INTO public.l VALUES ($1)", n); return err }); err != nil {
							return 0, err
						}
					}
					return n, nil
				})
				pay := steps.New("pay", same, steps.Idempotent(time.Hour))
				def := w.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
					return steps.Map2(in, pay.Do(f, long.Do(f, tx.Do(f, in))), func(a, b int) int { return a + b })
				})
				var stops []func()
				var es []*engine.Engine
				for range engines {
					e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{def}})
					es = append(es, e)
					stops = append(stops, work(t, e))
				}
				began := time.Now()
				runs, err := engine.StartMany(context.Background(), es[0], w, make([]int, 30))
				if err != nil {
					t.Fatal(err)
				}
				effSuccess(t, es[0], runs[0])
				if engines == 2 {
					stops[0]() // the other goes on
				}
				for _, r := range runs {
					effSuccess(t, es[engines-1], r)
				}
				t.Logf("%v", time.Since(began))
				for _, r := range runs {
					for _, h := range effGet(t, es[0], r.ID).History {
						if h.Event != "completed" && h.Event != "handed_back" {
							t.Errorf("%s %s %s", h.Step, h.Event, h.Reason)
						}
					}
				}
			})
		}
	}
}

// A lease of a month is a lease.
func TestFaultTxLongLease(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("month")
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.NewTx("tx", func(_ context.Context, _ pgx.Tx, n int) (int, error) { return n, nil },
		steps.MaxRuntime(31*24*time.Hour), steps.Lease(30*24*time.Hour)))}})
	work(t, e)
	r := effStart(t, e, w, 1)
	time.Sleep(3 * time.Second)
	info := effGet(t, e, r.ID)
	if info.State != engine.Succeeded {
		t.Errorf("%s: %v", info.State, info.History)
	}
}

// A Map that takes longer than its time: run with -race.
func TestFaultSlowMapRace(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("slow-map")
	p := steps.New("p", same)
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
		return steps.Map(p.Do(f, in), func(n int) int { time.Sleep(1500 * time.Millisecond); return n + 1 })
	})}})
	work(t, e)
	effSuccess(t, e, effStart(t, e, w, 1))
	time.Sleep(time.Second)
}

// A Map that hangs until the lease is lost: run with -race.
func TestFaultHangingMapRace(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("hanging-map")
	gate, in := make(chan bool), make(chan bool, 10)
	p := steps.New("p", same)
	e := effEngine(t, pool, engine.Config{Drain: 100 * time.Millisecond, Workflows: []steps.Definition{w.Define(func(f *steps.Flow, n steps.Ref[int]) steps.Ref[int] {
		return p.Do(f, steps.Map(n, func(n int) int { in <- true; <-gate; return n + 1 }))
	})}})
	stop := work(t, e)
	effStart(t, e, w, 1)
	effSignal(t, "the Map", in)
	stop()
	close(gate)
	time.Sleep(500 * time.Millisecond)
}

// The database's clock goes back: what was due waits until it has caught up,
// and the log says so.
func TestFaultClockBack(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("plain")
	shift := func(by string) {
		effExec(t, pool, "CREATE OR REPLACE FUNCTION pawl.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp()"+by+"'; "+
			"CREATE OR REPLACE FUNCTION pawl.now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT pg_catalog.now()"+by+"'")
	}
	log := &envLog{}
	e := effEngine(t, pool, engine.Config{Session: time.Second, Logger: log.logger(), Workflows: []steps.Definition{w.Of(steps.New("p", same))}})
	shift(" + interval ''1 hour''")
	work(t, e)
	effSuccess(t, e, effStart(t, e, w, 1))
	if log.said("clock went back") > 0 {
		t.Error("the clock is said to have gone back before it did")
	}
	shift("")
	effUntil(t, "it is said", func() bool { return log.said("clock went back") > 0 })
	effSuccess(t, e, effStart(t, e, w, 2)) // what is new goes on
}
