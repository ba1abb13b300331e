package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// In a pool too small for a lane, whoever renews waits for a quarter of a
// second for the pool, and then for a lane that does not exist.
func TestFaultSmallPoolPulse(t *testing.T) {
	for _, conns := range []int32{1, 2, 3, 4} {
		t.Run(fmt.Sprint(conns), func(t *testing.T) {
			t.Parallel()
			url := pgtest.Database(t)
			pool, observer := poolOf(t, url, conns), effPool(t, url)
			w := steps.Declare[int, int]("shared")
			e := effEngine(t, pool, engine.Config{NoListen: true, Slots: int(conns) + 1, Session: 6 * time.Second, Workflows: []steps.Definition{w.Of(steps.New("q", func(ctx context.Context, n int) (int, error) {
				_, err := pool.Exec(ctx, "SELECT pg_sleep(0.6)") // nobody waits for a connection for much longer
				return n, err
			}))}})
			if _, err := engine.StartMany(context.Background(), e, w, make([]int, 25*conns)); err != nil {
				t.Fatal(err)
			}
			work(t, e)
			effUntil(t, "all have ended", func() bool {
				return effScan[int](t, observer, "SELECT count(*) FROM pawl.run WHERE outcome IS NULL") == 0
			})
			if l := effScan[int](t, observer, "SELECT count(*) FROM pawl.history WHERE code = 'LEASE_EXPIRED'"); l != 0 {
				t.Errorf("%d leases lapsed", l)
			}
			if s := effScan[int](t, observer, "SELECT count(*) FROM pawl.session"); s != 1 {
				t.Errorf("%d sessions", s)
			}
		})
	}
}
