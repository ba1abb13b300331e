package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// The body of a transactional step ran twice, the first try was committed: the
// successor must be given the first's output, not that of the second, whose
// writes were rolled back.
func TestFaultTxOutputOfRolledBackTry(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool, proxy := effProxy(t, url)
	direct := effPool(t, url)
	effExec(t, direct, `
CREATE TABLE public.invoice (id serial PRIMARY KEY);
CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NEW.id = 1 THEN
    BEGIN PERFORM pg_catalog.pg_sleep(2); EXCEPTION WHEN query_canceled THEN PERFORM pg_catalog.pg_sleep(2); END;
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON public.invoice DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.slow();`)
	w := steps.Declare[int, int]("tx")
	var cut atomic.Int64
	proxy.OnExecute(func(sql string) pgproxy.Action {
		if sql == "commit" && cut.Add(1) == 1 {
			time.AfterFunc(300*time.Millisecond, proxy.CutAll)
		}
		return pgproxy.Pass
	})
	sent := make(chan int, 10)
	create := steps.NewTx("create", func(ctx context.Context, tx pgx.Tx, _ int) (id int, err error) {
		err = tx.QueryRow(ctx, "INSERT INTO public.invoice DEFAULT VALUES RETURNING id").Scan(&id)
		t.Log("try with invoice", id, err)
		return id, err
	})
	send := steps.New("send", func(_ context.Context, id int) (int, error) { sent <- id; return id, nil }, steps.Idempotent(time.Hour))
	e := effEngine(t, pool, engine.Config{NoListen: true, Workflows: []steps.Definition{w.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
		return send.Do(f, create.Do(f, in))
	})}})
	work(t, e)
	r := effStart(t, e, w, 0)
	id := effSignal(t, "the effect", sent)
	if n := effScan[int](t, direct, "SELECT count(*) FROM public.invoice WHERE id = $1", id); n != 1 {
		t.Errorf("invoice %d was sent, and it does not exist; what is there: %d", id, effScan[int](t, direct, "SELECT max(id) FROM public.invoice"))
	}
	observer := effEngine(t, direct, engine.Config{})
	info := effState(t, observer, r.ID, engine.Succeeded, engine.Failed)
	for _, h := range info.History {
		t.Logf("%s %s output %s", h.Step, h.Event, h.Output)
	}
}
