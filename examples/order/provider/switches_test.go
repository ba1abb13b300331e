package provider_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawlworks/pawl/examples/order/provider"
)

func TestSwitchSelects(t *testing.T) {
	t.Parallel()
	c := open(t, provider.Options{Faults: []provider.Fault{{Mode: provider.FailBefore, Orders: "order-1", Rate: 1}}})
	c.answered(c.charge("order-12"), 500)
	c.answered(c.charge("order-2"), 201)
	c.on(provider.Fault{Mode: provider.FailBefore, Orders: "order-1"}) // off
	c.answered(c.charge("order-12"), 201)
	c.on(provider.Fault{Mode: provider.FailAfter, Next: 2})
	c.answered(c.charge("order-3"), 500)
	c.answered(c.charge("order-4"), 500)
	c.answered(c.charge("order-5"), 201)
	var left []provider.Fault
	r := c.call(long, "GET", "/switches", "", nil)
	if err := json.Unmarshal([]byte(r.body), &left); err != nil || len(left) != 1 || left[0].Next != 0 {
		t.Errorf("the switches are %s, %v; want one, used up", r.body, err)
	}
}

func TestSwitchRefuses(t *testing.T) {
	t.Parallel()
	c := open(t, provider.Options{})
	for _, f := range []provider.Fault{
		{Mode: "explode", Rate: 1},
		{Mode: provider.Lose, Rate: 1.5},
		{Mode: provider.Lose, Rate: -1},
		{Mode: provider.Lose, Next: -1},
		{Mode: provider.Lose, On: "refunds", Rate: 1},
		{Mode: provider.Lose, Rate: 1, Delay: provider.Duration(time.Second)},
		{Mode: provider.Lose, On: provider.Lookups, Rate: 1},
		{Mode: provider.Forget, On: provider.Mails, Rate: 1},
		{Mode: provider.Declined, On: provider.Parcels, Rate: 1},
		{Mode: provider.Slow, Rate: 1},
	} {
		// The good one in front must not be switched on either.
		r := c.call(long, "POST", "/switches", "", []provider.Fault{{Mode: provider.FailBefore, Rate: 1}, f})
		if r.status != 400 {
			t.Errorf("%+v: the answer is %+v", f, r)
		}
	}
	c.answered(c.charge("order-1"), 201)
}

func TestParseFault(t *testing.T) {
	t.Parallel()
	got, err := provider.ParseFault("slow:rate=0.25,next=3,delay=1.5s,on=parcels,orders=order-00")
	want := provider.Fault{Mode: provider.Slow, On: provider.Parcels, Orders: "order-00", Rate: 0.25, Next: 3, Delay: provider.Duration(1500 * time.Millisecond)}
	if err != nil || got != want {
		t.Errorf("read %+v, %v; want %+v", got, err, want)
	}
	for _, text := range []string{"", "explode", "lose:rate=often", "lose:next=x", "lose:who=me", "slow:delay=1,next=1", "lose:rate=2"} {
		if f, err := provider.ParseFault(text); err == nil {
			t.Errorf("%q was read as %+v", text, f)
		}
	}
}

// What happens to an order depends on the seed, not on the others' speed.
func TestChanceIsTheSeeds(t *testing.T) {
	t.Parallel()
	faults := []provider.Fault{{Mode: provider.Declined, Rate: 0.2}, {Mode: provider.FailBefore, Rate: 0.3}}
	outcomes := func(seed uint64, backwards bool) []string {
		c := open(t, provider.Options{Seed: seed, Faults: faults})
		out := make([]string, 200)
		var all sync.WaitGroup
		for i := range out {
			if backwards {
				i = len(out) - 1 - i
			}
			all.Go(func() {
				order := fmt.Sprintf("order-%d", i)
				out[i] = fmt.Sprint(c.charge(order).status, c.charge(order).status)
			})
		}
		all.Wait()
		return out
	}
	one := outcomes(1, false)
	if other := outcomes(1, true); !slices.Equal(one, other) {
		t.Errorf("the same seed gave\n%v\nand\n%v", one, other)
	}
	if slices.Equal(one, outcomes(2, false)) {
		t.Error("another seed gave the same")
	}
	for i, got := range one {
		declined := provider.Fault{Mode: provider.Declined, On: provider.Charges, Rate: 0.2}.Picks(1, fmt.Sprintf("order-%d", i), 0)
		switch got {
		case "402 402", "500 402":
			if !declined {
				t.Errorf("order-%d: %s, and Picks says that it is not declined", i, got)
			}
		case "201 201", "500 201", "201 500":
			if declined {
				t.Errorf("order-%d: %s, and Picks says that it is declined", i, got)
			}
		case "500 500", "402 500":
		default:
			t.Errorf("order-%d: %s", i, got)
		}
	}
}
