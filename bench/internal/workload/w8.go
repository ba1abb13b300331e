package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawlworks/pawl/bench/internal/ballast"
	"github.com/pawlworks/pawl/bench/internal/meter"
	"github.com/pawlworks/pawl/bench/internal/system"
)

const (
	pending   = "1,000,000 pending"
	scheduled = "1,000,000 scheduled, higher priority"
	unknown   = "1,000,000 of an unknown workflow"
	leased    = "50,000 leased by others"
)

var w8 = Workload{
	Name:  "W8",
	Title: "throughput and claims beside ballast, against an empty queue just before",
	Cases: []Case{{Name: pending, N: 1_000_000}, {Name: scheduled, N: 1_000_000}, {Name: unknown, N: 1_000_000}, {Name: leased, N: 50_000}},
	Limit: 10 * time.Minute,
	Measure: func(ctx context.Context, e *Env) error {
		c := newClaims()
		e.tracer = c
		s, err := e.open(ctx, e.Slots)
		if err != nil {
			return err
		}
		t, ok := s.(system.Tabled)
		if !ok {
			return fmt.Errorf("%s does not use Pawl's tables", e.Contestant)
		}
		few, err := e.another(ctx, claimSlots)
		if err != nil {
			return err
		}
		empty, err := e.busy(ctx, t, few, c)
		if err != nil {
			return fmt.Errorf("the empty queue: %w", err)
		}
		if err := e.lay(ctx, t); err != nil {
			return err
		}
		full, err := e.busy(ctx, t, few, c)
		if err != nil {
			return err
		}
		e.add("steps_per_s", full.rate)
		e.add("empty_steps_per_s", empty.rate)
		e.add("throughput_by_empty", full.rate/empty.rate)
		e.addTimes("claim", full.claims)
		e.add("claims", float64(full.claims.Len()))
		if empty.claims.Len() >= 100 && full.claims.Len() >= 100 {
			e.add("empty_claim_p99_ms", empty.claims.Quantile(0.99))
			e.add("claim_p99_by_empty", full.claims.Quantile(0.99)/empty.claims.Quantile(0.99))
		} else {
			e.note("%d and %d claims were seen: too few for a p99 to compare", empty.claims.Len(), full.claims.Len())
		}
		return nil
	},
}

type busyness struct {
	rate   float64
	claims *meter.Times
}

// claimSlots is how many slots a worker has while its claims are timed: with
// few, each asks for few jobs, and there are many of them.
const claimSlots = 20

// busy is the throughput under W1's load for some seconds, and then the claims
// of a worker with few slots.
func (e *Env) busy(ctx context.Context, many, few system.System, c *claims) (b busyness, err error) {
	if err := e.checkpoint(ctx); err != nil {
		return b, err
	}
	if b.rate, err = e.seconds(ctx, many, func() {}); err != nil {
		return b, err
	}
	b.claims = &meter.Times{}
	c.times.Store(b.claims)
	_, err = e.seconds(ctx, few, func() { c.on.Store(true) })
	c.on.Store(false)
	return b, err
}

// seconds is the throughput of some seconds. Warm is called when they begin.
func (e *Env) seconds(ctx context.Context, s system.System, warm func()) (rate float64, err error) {
	l, err := e.startLoad(ctx, s)
	if err != nil {
		return 0, err
	}
	if err = sleep(ctx, e.d(2*time.Second, 200*time.Millisecond)); err == nil {
		warm()
		rate, err = l.rate(ctx, e.d(8*time.Second, 500*time.Millisecond))
	}
	return rate, errors.Join(err, l.end())
}

// lay lays the case's ballast. Statistics are left as they are: what a burst
// finds in real life. Autovacuum's ANALYZE may come in between, as it may there.
func (e *Env) lay(ctx context.Context, t system.Tabled) error {
	r := ballast.Rows{N: e.n(e.Case.N), Workflow: t.Table(), Input: t.Ballast(), Priority: 1}
	switch e.Case.Name {
	case scheduled:
		r.Priority, r.DueIn = 3, 24*time.Hour
	case unknown:
		r.Workflow = "nobody-knows"
		if err := ballast.Unknown(ctx, e.admin, r.Workflow); err != nil {
			return err
		}
	case leased:
		r.Lease = 24 * time.Hour
	}
	return ballast.Lay(ctx, e.admin, r)
}
