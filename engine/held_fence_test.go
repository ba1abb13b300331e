package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// TestHeldFence: the fence in a transaction with a user's code waits for a row
// that somebody holds, and sees what he has made of it: the code runs once.
func TestHeldFence(t *testing.T) {
	t.Parallel()
	const renewal = "UPDATE pawl.job SET expires_at = expires_at + interval '1 ms'"
	const wish = "UPDATE pawl.run SET cancelling = true, cancelled_by = 'ada', cancel_reason = 'x'" // the last step is done: too late
	for _, c := range []struct {
		name, sql string
		long      bool
	}{{"a step, its job", renewal, false}, {"a step, its run", wish, false}, {"CommitTx, its job", renewal, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			b := &fenceBed{t: t, pool: effPool(t, pgtest.Database(t))}
			b.exec("CREATE TABLE ledger (n int)")
			holder, err := b.pool.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer holder.Rollback(ctx)
			var calls atomic.Int64
			write := func(ctx context.Context, tx pgx.Tx) error {
				if calls.Add(1) == 1 {
					if tag, err := holder.Exec(ctx, c.sql); err != nil || tag.RowsAffected() != 1 {
						return steps.Permanent("HOLD", fmt.Errorf("%v, %w", tag, err))
					}
				}
				_, err := tx.Exec(ctx, "INSERT INTO ledger VALUES (1)")
				return err
			}
			w := steps.Declare[int, int]("held-fence")
			def := w.Of(steps.NewTx("tx", func(ctx context.Context, tx pgx.Tx, n int) (int, error) { return n, write(ctx, tx) }))
			if c.long {
				def = w.Of(steps.NewLong("long", func(ctx context.Context, n int, cur *steps.Cursor[int]) (int, error) {
					return n, cur.CommitTx(ctx, 1, func(tx pgx.Tx) error { return write(ctx, tx) })
				}))
			}
			// A long session: no pulse tells of the wish to cancel, nobody else steps in.
			e := effEngine(t, b.pool, engine.Config{Workflows: []steps.Definition{def}, Session: 5 * time.Minute, NoListen: true})
			work(t, e)
			r := effStart(t, e, w, 7)
			effUntil(t, "the fence waits", func() bool {
				return calls.Load() > 1 || calls.Load() == 1 && effScan[bool](t, b.pool, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
			})
			if err := holder.Commit(ctx); err != nil {
				t.Fatal(err)
			}
			if out := effSuccess(t, e, r); out != 7 || calls.Load() != 1 {
				t.Errorf("got %d after %d calls", out, calls.Load())
			}
			if n := effScan[int](t, b.pool, "SELECT count(*) FROM ledger"); n != 1 {
				t.Errorf("%d of the user's writes are there", n)
			}
		})
	}
}
