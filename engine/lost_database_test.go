package engine_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pglocal"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

var fragile = steps.Declare[int, int]("fragile")

// tally counts calls by run and step.
type tally struct {
	mu    sync.Mutex
	calls map[string]int
}

func (c *tally) count(step string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[fmt.Sprint(n/10, " ", step)]++
}

// fragileSteps adds one at each of four steps, the third in a transaction with
// a row of the user's. Inputs are multiples of ten.
func (c *tally) fragileSteps() steps.Definition {
	add := func(name string) steps.Step[int, int] {
		return steps.New(name, func(_ context.Context, n int) (int, error) { c.count(name, n); return n + 1, nil })
	}
	tx := steps.NewTx("tx", func(ctx context.Context, tx pgx.Tx, n int) (int, error) {
		c.count("tx", n)
		_, err := tx.Exec(ctx, "INSERT INTO public.ledger VALUES ($1)", n/10)
		return n + 1, err
	})
	return fragile.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
		return add("last").Do(f, tx.Do(f, add("two").Do(f, add("one").Do(f, in))))
	})
}

// TestLostDatabase kills the database twice under the load of two workers.
// They reconnect, all runs end, rows written with a step are there once, and a
// body ran again only where its lease was lost. Not parallel, since in the end it
// counts goroutines.
func TestLostDatabase(t *testing.T) {
	const n = 120
	ctx := context.Background()
	server := pgtest.Own(t, pglocal.Options{})
	dsn := pgtest.DatabaseOn(t, server)
	setup := envPool(t, dsn)
	effExec(t, setup, "CREATE TABLE public.ledger (run integer)")
	setup.Close()
	leaks := []goleak.Option{goleak.IgnoreCurrent(), // and what reads the restarted server's log
		goleak.IgnoreAnyFunction("github.com/pawlworks/pawl/internal/pglocal.startPostmaster.func1")}

	calls := &tally{calls: map[string]int{}}
	log := &envLog{}
	var pools []*pgxpool.Pool
	var stops []func()
	var engines []*engine.Engine
	for range 2 {
		pool := envPool(t, dsn)
		e := envEngine(t, pool, engine.Config{Slots: 20, Session: 3 * time.Second, Logger: log.logger(), Workflows: []steps.Definition{calls.fragileSteps()}})
		pools, engines = append(pools, pool), append(engines, e)
	}
	e := engines[0]
	inputs := make([]int, n)
	for i := range inputs {
		inputs[i] = 10 * i
	}
	runs, err := engine.StartMany(ctx, e, fragile, inputs)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range engines {
		stops = append(stops, work(t, e))
	}
	ended := func() int {
		return effScan[int](t, pools[0], "SELECT count(*) FROM pawl.run WHERE outcome IS NOT NULL")
	}
	for _, share := range []int{n / 10, n / 2} {
		effUntil(t, "some are done", func() bool { return ended() >= share })
		server.Kill()
		effUntil(t, "it is noticed", func() bool { return log.said("trying again") > 0 })
		restart, cancel := context.WithTimeout(ctx, envPatience)
		if err := server.Restart(restart); err != nil {
			t.Fatal(err)
		}
		cancel()
		effUntil(t, "the database is back", func() bool { return pools[0].Ping(ctx) == nil })
	}
	for i, r := range runs {
		if out := effSuccess(t, e, r); out != 10*i+4 {
			t.Errorf("run %d: %d", i, out)
		}
	}
	lapses := map[string]int{} // by run and step
	for i, r := range runs {
		for _, h := range effGet(t, e, r.ID).History {
			if h.Event == "lapsed" {
				lapses[fmt.Sprint(i, " ", h.Step)]++
			}
		}
	}
	for at, times := range calls.calls {
		// A result is kept until the database takes it; only with the lease is it
		// lost. A transactional body runs again when its transaction was lost.
		if times > 1+lapses[at] && !strings.HasSuffix(at, "tx") {
			t.Errorf("%s: %d calls, %d lapses", at, times, lapses[at])
		}
	}
	if rows, distinct := effScan[int](t, pools[0], "SELECT count(*) FROM public.ledger"), effScan[int](t, pools[0], "SELECT count(DISTINCT run) FROM public.ledger"); rows != n || distinct != n {
		t.Errorf("%d rows of %d runs in the ledger, want %d", rows, distinct, n)
	}
	for _, stop := range stops {
		stop()
	}
	for _, pool := range pools {
		pool.Close()
	}
	if err := goleak.Find(leaks...); err != nil {
		t.Error(err)
	}
}

// TestLostIdle kills the database while nothing happens. A worker must notice
// by itself, whether it listens or only polls, and have usable connections when
// it is back: what is started then, elsewhere and unannounced, is found.
func TestLostIdle(t *testing.T) {
	t.Parallel()
	server := pgtest.Own(t, pglocal.Options{})
	type worker struct {
		log *envLog
		e   *engine.Engine
		dsn string
	}
	var workers []worker
	for _, poll := range []bool{false, true} {
		w := worker{log: &envLog{}, dsn: pgtest.DatabaseOn(t, server)}
		w.e = envEngine(t, envPool(t, w.dsn), engine.Config{NoListen: poll, Session: 2 * time.Second, Logger: w.log.logger(), Workflows: []steps.Definition{
			fragile.Of(steps.New("step", func(_ context.Context, n int) (int, error) { return n + 1, nil }))}})
		work(t, w.e)
		effSuccess(t, w.e, effStart(t, w.e, fragile, 1)) // it works, and then there is nothing to do
		workers = append(workers, w)
	}
	server.Kill()
	for _, w := range workers {
		effUntil(t, "the loss is noticed", func() bool { return w.log.said("the pulse; trying again") > 0 })
	}
	if c, err := net.DialTimeout("tcp", server.Addr(), time.Second); err == nil {
		c.Close()
		t.Error("the database was not away")
	}
	restart, cancel := context.WithTimeout(t.Context(), envPatience)
	defer cancel()
	if err := server.Restart(restart); err != nil {
		t.Fatal(err)
	}
	for _, w := range workers {
		other := envEngine(t, envPool(t, w.dsn), engine.Config{NoListen: true})
		for i := range 3 {
			run := effStart(t, other, fragile, i, engine.Silently())
			if out := effSuccess(t, other, run); out != i+1 {
				t.Error(out)
			}
		}
	}
}
