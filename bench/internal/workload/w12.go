package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/pawlworks/pawl/bench/internal/ballast"
	"github.com/pawlworks/pawl/bench/internal/system"
)

var w12 = Workload{
	Name:  "W12",
	Title: "50,000 leases expire at once, beside W1's load",
	Cases: []Case{{N: 50_000}},
	Limit: 3 * time.Minute,
	Measure: func(ctx context.Context, e *Env) error {
		s, err := e.open(ctx, e.Slots)
		if err != nil {
			return err
		}
		if _, ok := s.(system.Tabled); !ok {
			return fmt.Errorf("%s does not use Pawl's tables", e.Contestant)
		}
		// Of a workflow that no worker knows, so that what is recovered stays
		// where it is and does not count as others' throughput.
		if err := ballast.Unknown(ctx, e.admin, "nobody-knows"); err != nil {
			return err
		}
		if err := e.checkpoint(ctx); err != nil {
			return err
		}
		lease := e.d(25*time.Second, 4*time.Second)
		n := e.n(e.Case.N)
		if err := ballast.Lay(ctx, e.admin, ballast.Rows{N: n, Workflow: "nobody-knows", Input: "'{}'", Priority: 1, Lease: lease}); err != nil {
			return err
		}
		var left float64 // seconds
		if err := e.admin.QueryRow(ctx, "SELECT extract(epoch FROM min(expires_at) - clock_timestamp())::float8 FROM pawl.job WHERE state = 'running'").Scan(&left); err != nil {
			return err
		}
		expiry := time.Now().Add(time.Duration(left * float64(time.Second)))
		l, err := e.startLoad(ctx, s)
		if err != nil {
			return err
		}
		if err := sleep(ctx, e.d(4*time.Second, 300*time.Millisecond)); err != nil {
			return err
		}
		window := time.Until(expiry) - 200*time.Millisecond
		if window <= 0 {
			return fmt.Errorf("laying %d rows took longer than the lease of %v", n, lease)
		}
		before, err := l.rate(ctx, window)
		if err != nil {
			return err
		}
		if err := sleep(ctx, time.Until(expiry)); err != nil {
			return err
		}
		return e.recovery(ctx, l, n, before)
	},
}

// recovery waits for the last of n leases, and reads from the history when
// each was taken back.
func (e *Env) recovery(ctx context.Context, l *load, n int, before float64) error {
	began, steps := time.Now(), e.begun.Load()
	var first, last float64
	for {
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		var left bool
		if err := e.admin.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pawl.job j JOIN pawl.session s ON s.id = j.owner
			 WHERE j.shard = 0 AND j.state = 'running' AND s.name = 'ballast')`).Scan(&left); err != nil {
			return err
		}
		if !left {
			break
		}
	}
	during := float64(e.begun.Load()-steps) / time.Since(began).Seconds()
	if err := l.end(); err != nil {
		return err
	}
	var rows int
	if err := e.admin.QueryRow(ctx, `SELECT count(*), extract(epoch FROM min(h.ended_at) - min(x.at))::float8, extract(epoch FROM max(h.ended_at) - min(x.at))::float8
		  FROM pawl.history h JOIN pawl.run r ON r.shard = h.shard AND r.id = h.run_id,
		       LATERAL (SELECT to_timestamp($1::float8) AS at) x
		 WHERE h.event = 'lapsed' AND r.workflow = 'nobody-knows'`, float64(began.UnixMicro())/1e6).Scan(&rows, &first, &last); err != nil {
		return err
	}
	if rows != n {
		return fmt.Errorf("%d leases were taken back, not %d", rows, n)
	}
	e.add("recovered_per_s", float64(n)/last)
	e.add("recovery_s", last)
	e.add("first_recovery_s", first)
	e.add("before_steps_per_s", before)
	e.add("during_steps_per_s", during)
	e.add("during_by_before", during/before)
	return nil
}
