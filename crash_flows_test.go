//go:build unix

package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawlworks/pawl/internal/fault"
	"github.com/pawlworks/pawl/steps"
)

// order is what all runs of the suite are about; its name finds them again at
// the target.
type order struct{ Name string }

// lateArrival is how long "not found" does not count at the target.
const lateArrival = 300 * time.Millisecond

// The workflows that a worker process may be told to know, by name.
var flows = map[string]func(*hand) steps.Definition{}

func contract(name string) steps.Workflow[order, receipt] { return steps.Declare[order, receipt](name) }

type body = func(context.Context, order) (receipt, error)

// acts is the body of a step that has an effect.
func (h *hand) acts(step string) body {
	return func(ctx context.Context, o order) (receipt, error) { return h.do(ctx, step, o) }
}

// flow adds a workflow that charges and then ships. The second step is there
// so that a job is left to see what a late writer does to it.
func flow(name string, charge func(*hand) steps.Step[order, receipt], opts ...steps.Option) {
	flows[name] = func(h *hand) steps.Definition {
		return contract(name).Define(func(f *steps.Flow, o steps.Ref[order]) steps.Ref[receipt] {
			charged := charge(h).Do(f, o)
			shipped := steps.New("ship", h.acts("ship")).Do(f, steps.Map2(o, charged, func(o order, _ receipt) order { return o }))
			return steps.Map2(charged, shipped, func(c, _ receipt) receipt { return c })
		}, opts...)
	}
}

// single adds a workflow of one step.
func single(name string, step func(*hand) steps.Step[order, receipt]) {
	flows[name] = func(h *hand) steps.Definition { return contract(name).Of(step(h)) }
}

func init() {
	single("short", func(h *hand) steps.Step[order, receipt] { return steps.New("call", h.acts("call")) })

	// One for each declaration of an effect.
	flow("plain", func(h *hand) steps.Step[order, receipt] { return steps.New("charge", h.acts("charge")) })
	flow("idempotent", func(h *hand) steps.Step[order, receipt] {
		return steps.New("charge", h.acts("charge"), steps.Idempotent(steps.Forever))
	})
	flow("lookup", func(h *hand) steps.Step[order, receipt] {
		return steps.New("charge", h.acts("charge")).LookUp(h.find, lateArrival, quick)
	})
	flow("manual", func(h *hand) steps.Step[order, receipt] {
		return steps.New("charge", h.acts("charge"), steps.Manual())
	})

	// A queue for each point at which a worker dies, so that it gets that run and no other.
	for _, label := range fault.Labels {
		flow("lookup-"+label, func(h *hand) steps.Step[order, receipt] {
			return steps.New("charge", h.acts("charge")).LookUp(h.find, lateArrival, quick)
		}, steps.Queue(label))
	}

	// Leases of half an hour, which the tests don't wait for.
	for name, effect := range map[string]func(*hand, steps.Step[order, receipt]) steps.Step[order, receipt]{
		"slow": func(_ *hand, s steps.Step[order, receipt]) steps.Step[order, receipt] { return s },
		"slow-lookup": func(h *hand, s steps.Step[order, receipt]) steps.Step[order, receipt] {
			return s.LookUp(h.find, time.Hour)
		},
	} {
		single(name, func(h *hand) steps.Step[order, receipt] {
			return effect(h, steps.New("wait", h.acts("wait"), steps.Lease(30*time.Minute), steps.MaxRuntime(time.Hour)))
		})
	}

	// Bodies that have one effect after another for as long as they may.
	for name, lease := range map[string]time.Duration{"beats-short": beatLease, "beats-long": 10 * time.Minute} {
		single(name, func(h *hand) steps.Step[order, receipt] {
			return steps.New("beat", h.beats, steps.Lease(lease), steps.Heartbeat(200*time.Millisecond))
		})
	}
	single("deaf", func(h *hand) steps.Step[order, receipt] { return steps.New("act", h.deaf) })

	flows["fragile"] = func(h *hand) steps.Definition {
		return contract("fragile").Define(func(f *steps.Flow, o steps.Ref[order]) steps.Ref[receipt] {
			made := steps.New("prepare", h.acts("prepare")).Do(f, o)
			return steps.New("fragile", h.fragile, steps.Retry{Attempts: 3, Delay: time.Millisecond, MaxDelay: 10 * time.Millisecond}).
				Do(f, steps.Map2(o, made, func(o order, _ receipt) order { return o }))
		})
	}
	single("long", func(h *hand) steps.Step[order, receipt] { return steps.NewLong("long", h.long) })

	flows["chain"] = func(h *hand) steps.Definition {
		return contract("chain").Define(func(f *steps.Flow, o steps.Ref[order]) steps.Ref[receipt] {
			var last steps.Ref[receipt]
			for i := range chainLinks {
				last = steps.New(fmt.Sprint("link-", i), h.acts(fmt.Sprint("link-", i))).Do(f, o)
			}
			return last
		})
	}

	// From queue to queue: what no hand-over can do.
	flows["relay"] = func(h *hand) steps.Definition {
		return contract("relay").Define(func(f *steps.Flow, o steps.Ref[order]) steps.Ref[receipt] {
			var last steps.Ref[receipt]
			for i := range relayLegs {
				last = steps.New(fmt.Sprint("leg-", i), h.acts(fmt.Sprint("leg-", i)), steps.Queue(relayQueues[i%2])).Do(f, o)
			}
			return last
		})
	}
}

// quick is how soon the reconciler asks again.
var quick = steps.Retry{Delay: 50 * time.Millisecond, MaxDelay: 200 * time.Millisecond}

const (
	relayLegs  = 4
	chainLinks = 5
)

var relayQueues = [2]string{"odd", "even"}

// beats is a cooperative body: it looks at its context before each effect, and
// says when that has ended, and why.
func (h *hand) beats(ctx context.Context, o order) (receipt, error) {
	ended := make(chan time.Time, 1)
	context.AfterFunc(ctx, func() { ended <- time.Now() })
	for {
		if err := steps.Acknowledge(ctx); err != nil {
			h.note(ctx, "beat", o, (<-ended).Format(time.RFC3339Nano)+" "+err.Error())
			return receipt{}, err
		}
		if r, err := h.do(ctx, "beat", o); err == errEnough {
			return r, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(beatEvery):
		}
	}
}

// deaf is a body that has begun and does not look at its context any more.
func (h *hand) deaf(ctx context.Context, o order) (receipt, error) {
	h.note(ctx, "act", o, "about to act")
	return h.do(context.WithoutCancel(ctx), "act", o)
}

func (h *hand) fragile(ctx context.Context, o order) (receipt, error) {
	r, err := h.do(ctx, "fragile", o)
	if err != nil {
		return r, &steps.Error{Class: steps.ClassTransient, Code: "FRAGILE", Err: errors.New("the target has broken it")}
	}
	return r, nil
}

// long moves its cursor by one at a time, and has an effect at each place.
func (h *hand) long(ctx context.Context, o order, cur *steps.Cursor[int]) (receipt, error) {
	var r receipt
	for n := cur.At(); n < longPlaces; {
		var err error
		if r, err = h.do(ctx, fmt.Sprint("place-", n), o); err != nil {
			return r, err
		}
		n++
		if err := cur.Commit(ctx, n); err != nil {
			return r, err
		}
	}
	return r, nil
}
