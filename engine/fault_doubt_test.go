package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// slowCommit: the commit of the row takes a while on the server, as it does
// when a synchronous standby is late (which a cancel request, should it arrive, does not undo either);
// here by a deferred trigger.
const slowCommit = `
CREATE TABLE public.chunks (n int PRIMARY KEY);
CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NEW.n = 0 THEN
    BEGIN PERFORM pg_catalog.pg_sleep(2); EXCEPTION WHEN query_canceled THEN PERFORM pg_catalog.pg_sleep(2); END;
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON public.chunks DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.slow();`

func duplicate(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505"
}

// COMMIT is under way on the server when its connection breaks. The engine
// reads too early that nothing was written, runs fn again, fn is refused as a
// duplicate, which the importer takes for "imported before" - and the next
// chunk is reported as committed and is not there.
func TestFaultChunkLost(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool, proxy := effProxy(t, url)
	direct := effPool(t, url)
	effExec(t, direct, slowCommit)
	w := steps.Declare[int, int]("import")
	var cut, dups atomic.Int64
	proxy.OnExecute(func(sql string) pgproxy.Action {
		if sql == "commit" && cut.Add(1) == 1 {
			time.AfterFunc(300*time.Millisecond, proxy.CutAll) // the server has it by then
		}
		return pgproxy.Pass
	})
	e := effEngine(t, pool, engine.Config{NoListen: true, Workflows: []steps.Definition{w.Of(steps.NewLong("long", func(ctx context.Context, n int, cur *steps.Cursor[int]) (int, error) {
		for p := cur.At(); p < 3; p++ {
			err := cur.CommitTx(ctx, p+1, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO public.chunks VALUES ($1)", p)
				return err
			})
			t.Logf("chunk %d: %v; cursor %d", p, err, cur.At())
			if duplicate(err) { // it is there: on to the next
				dups.Add(1)
				continue
			}
			if err != nil {
				return 0, err
			}
		}
		return n, nil
	}))}})
	work(t, e)
	r := effStart(t, e, w, 1)
	effSuccess(t, e, r)
	if rows := effScan[int](t, direct, "SELECT count(*) FROM public.chunks"); rows != 3 {
		t.Errorf("%d of 3 chunks are there; CommitTx returned nil for each that is missing (%d duplicates reported)", rows, dups.Load())
	}
}

// The same without any handling in fn: the body returns what CommitTx returned.
// CommitTx must not say that a chunk which was committed was refused.
func TestFaultChunkDuplicateError(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool, proxy := effProxy(t, url)
	direct := effPool(t, url)
	effExec(t, direct, slowCommit)
	w := steps.Declare[int, int]("import")
	var cut atomic.Int64
	proxy.OnExecute(func(sql string) pgproxy.Action {
		if sql == "commit" && cut.Add(1) == 1 {
			time.AfterFunc(300*time.Millisecond, proxy.CutAll)
		}
		return pgproxy.Pass
	})
	e := effEngine(t, pool, engine.Config{NoListen: true, Workflows: []steps.Definition{w.Of(steps.NewLong("long", func(ctx context.Context, n int, cur *steps.Cursor[int]) (int, error) {
		for p := cur.At(); p < 3; p++ {
			if err := cur.CommitTx(ctx, p+1, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO public.chunks VALUES ($1)", p)
				return err
			}); err != nil {
				return 0, steps.Permanent("INSERT", err)
			}
		}
		return n, nil
	}))}})
	work(t, e)
	r := effStart(t, e, w, 1)
	observer := effEngine(t, direct, engine.Config{})
	info := effState(t, observer, r.ID, engine.Succeeded, engine.Failed)
	if info.State != engine.Succeeded {
		t.Errorf("%s: %s; chunks %d", info.State, info.Reason, effScan[int](t, direct, "SELECT count(*) FROM public.chunks"))
	}
}

// A transactional step whose COMMIT was under way: done, and its successor is
// leased to this worker, which does not know and leaves it until it lapses.
func TestFaultTxStepStuck(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool, proxy := effProxy(t, url)
	direct := effPool(t, url)
	effExec(t, direct, slowCommit)
	w := steps.Declare[int, int]("tx")
	var cut atomic.Int64
	proxy.OnExecute(func(sql string) pgproxy.Action {
		if sql == "commit" && cut.Add(1) == 1 {
			time.AfterFunc(300*time.Millisecond, proxy.CutAll)
		}
		return pgproxy.Pass
	})
	log := &envLog{}
	next := make(chan bool, 10)
	ins := steps.NewTx("ins", func(ctx context.Context, tx pgx.Tx, n int) (int, error) {
		_, err := tx.Exec(ctx, "INSERT INTO public.chunks VALUES ($1)", n)
		t.Log("ins: ", err)
		return n, err
	})
	after := steps.New("after", func(ctx context.Context, n int) (int, error) { next <- true; return n, nil })
	e := effEngine(t, pool, engine.Config{NoListen: true, Logger: log.logger(), Workflows: []steps.Definition{w.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
		return after.Do(f, ins.Do(f, in))
	})}})
	work(t, e)
	r := effStart(t, e, w, 0)
	effUntil(t, "it is committed", func() bool { return effScan[int](t, direct, "SELECT count(*) FROM public.chunks") == 1 })
	select {
	case <-next:
	case <-time.After(20 * time.Second):
		info := effGet(t, effEngine(t, direct, engine.Config{}), r.ID)
		t.Errorf("20 s after its commit the successor has not been called: %s %s\n%+v\n%s", info.State, info.Step, info, log.last(5))
	}
}
