package provider_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/pawlworks/pawl/examples/order/provider"
)

func TestDecline(t *testing.T) {
	t.Parallel()
	c := open(t, provider.Options{})
	c.on(provider.Fault{Mode: provider.Declined, Next: 1})
	r := c.charge("order-1")
	c.answered(r, 402)
	if !strings.Contains(r.body, `"code":"card_declined"`) {
		t.Errorf("the code is missing: %s", r.body)
	}
	again := c.charge("order-1") // the switch is off again; the answer is remembered
	c.answered(again, 402)
	if again.body != r.body || !again.replayed {
		t.Errorf("replayed %+v, first %+v", again, r)
	}
	c.answered(c.lookUp("order-1"), 200)
	c.charged("order-1", 0)

	// The key forgotten, the same card may have money again; the look-up
	// tells of the charge then, not of the decline.
	c.on(provider.Fault{Mode: provider.Forget, Next: 1})
	c.answered(c.charge("order-1"), 201)
	if r := c.lookUp("order-1"); !strings.Contains(r.body, "succeeded") {
		t.Errorf("the look-up says %s", r.body)
	}
}

// Every fault that strikes before leaves nothing behind, every one that strikes
// after has charged; and after both the same key charges no second time.
func TestFailAndTimeOut(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		mode   provider.Mode
		status int // 0: none
		after  bool
	}{
		{provider.FailBefore, 500, false},
		{provider.FailAfter, 500, true},
		{provider.TimeoutBefore, 0, false},
		{provider.TimeoutAfter, 0, true},
	} {
		t.Run(string(test.mode), func(t *testing.T) {
			t.Parallel()
			c := open(t, provider.Options{})
			c.on(provider.Fault{Mode: test.mode, Next: 1})
			if test.status == 0 {
				c.answered(c.chargeBriefly("order-1"), 0)
			} else {
				c.answered(c.charge("order-1"), test.status)
			}
			times, found := 0, 404
			if test.after {
				times, found = 1, 200
			}
			until(t, "the ledger knows it", func() bool { return len(c.ledger()) == times })
			c.answered(c.lookUp("order-1"), found)
			var r reply
			until(t, "the key is free", func() bool { r = c.charge("order-1"); return r.status != 409 })
			c.answered(r, 201)
			if r.replayed != test.after {
				t.Errorf("the second answer: %+v", r)
			}
			c.charged("order-1", 1)
		})
	}
}

func TestLose(t *testing.T) {
	t.Parallel()
	c := open(t, provider.Options{})
	c.on(provider.Fault{Mode: provider.Lose, Next: 1})
	if r := c.charge("order-1"); !errors.Is(r.err, io.EOF) {
		t.Errorf("want a connection that is closed without an answer, got %+v", r)
	}
	c.charged("order-1", 1)
	c.answered(c.charge("order-1"), 201)
	c.charged("order-1", 1)
}

// The ledger is never forgotten: only what keys mean.
func TestForget(t *testing.T) {
	t.Parallel()
	c := open(t, provider.Options{})
	first := c.charge("order-1")
	c.answered(first, 201)
	c.on(provider.Fault{Mode: provider.Forget, Next: 1})
	c.answered(c.charge("order-2"), 201) // a new key: nothing to forget
	second := c.charge("order-1")
	c.answered(second, 201)
	if second.replayed || second.body == first.body {
		t.Errorf("replayed %+v", second)
	}
	c.charged("order-1", 2)
	third := c.charge("order-1")
	if third.body != second.body || !third.replayed {
		t.Errorf("the newest charge is not remembered: %+v", third)
	}
	if r := c.lookUp("order-1"); r.body != first.body {
		t.Errorf("the look-up says %s, want the first: %s", r.body, first.body)
	}
}

// A charge that comes late comes after its caller has given up.
func TestSlow(t *testing.T) {
	t.Parallel()
	const delay = 300 * time.Millisecond
	c := open(t, provider.Options{})
	c.on(provider.Fault{Mode: provider.Slow, Next: 1, Delay: provider.Duration(delay)})
	before := time.Now()
	c.answered(c.chargeBriefly("order-1"), 0)
	if r := c.charge("order-1"); time.Since(before) < delay {
		c.answered(r, 409) // in the middle of it
	}
	until(t, "the charge arrives", func() bool { return len(c.ledger()) == 1 })
	if time.Since(before) < delay {
		t.Errorf("charged after %v, sooner than slow", time.Since(before))
	}
	c.charged("order-1", 1)
}

func TestFaultsElsewhere(t *testing.T) {
	t.Parallel()
	c := open(t, provider.Options{})
	c.answered(c.charge("order-1"), 201)
	c.on(
		provider.Fault{Mode: provider.FailBefore, On: provider.Lookups, Next: 1},
		provider.Fault{Mode: provider.FailAfter, On: provider.Parcels, Next: 1},
		provider.Fault{Mode: provider.FailBefore, On: provider.Mails, Next: 1},
	)
	c.answered(c.lookUp("order-1"), 500)
	c.answered(c.lookUp("order-1"), 200)
	body := provider.SendRequest{Order: "order-1"}
	for path, kind := range map[string]provider.Kind{"/parcels": provider.Parcel, "/mails": provider.Mail} {
		c.answered(c.call(long, "POST", path, "key", body), 500)
		c.answered(c.call(long, "POST", path, "key", body), 201)
		if got := len(c.ledger().Of(kind)["order-1"]); got != 1 {
			t.Errorf("%s: sent %d times, want once", path, got)
		}
	}
}
