package provider_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawlworks/pawl/examples/order/provider"
)

func TestChargeOnceForAKey(t *testing.T) {
	t.Parallel()
	c := open(t, provider.Options{})
	first := c.charge("order-1")
	c.answered(first, 201)
	again := c.charge("order-1")
	c.answered(again, 201)
	if again.body != first.body || first.replayed || !again.replayed {
		t.Errorf("replayed %+v, first %+v", again, first)
	}
	other := c.call(long, "POST", "/charges", "key-order-1", provider.ChargeRequest{Order: "order-1", Customer: "customer-1", Cents: 101})
	c.answered(other, 422)
	c.charged("order-1", 1)
}

func TestChargeRefuses(t *testing.T) {
	t.Parallel()
	c := open(t, provider.Options{})
	c.answered(c.call(long, "POST", "/charges", "", provider.ChargeRequest{Order: "order-1", Cents: 1}), 400)
	c.answered(c.call(long, "POST", "/charges", "key", provider.ChargeRequest{Order: "order-1"}), 400)
	c.answered(c.call(long, "POST", "/charges", "key", provider.ChargeRequest{Cents: 1}), 400)
	c.answered(c.call(long, "POST", "/charges", "key", "text"), 400)
	c.charged("order-1", 0)
}

// Fifty callers with one key charge once, and who comes in the middle is
// told so.
func TestChargeAtTheSameTime(t *testing.T) {
	t.Parallel()
	c := open(t, provider.Options{})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if r := c.charge("order-1"); r.status != 201 && r.status != 409 {
				t.Errorf("the answer is %+v", r)
			}
		})
	}
	all.Wait()
	c.charged("order-1", 1)
}

func TestKeyIsRememberedForSoLong(t *testing.T) {
	t.Parallel()
	c := open(t, provider.Options{Remember: time.Millisecond})
	c.answered(c.charge("order-1"), 201)
	until(t, "the key is forgotten", func() bool { return !c.charge("order-1").replayed })
	if got := len(c.ledger().Of(provider.Charge)["order-1"]); got < 2 {
		t.Errorf("%d charges under a key that was forgotten, want one more", got)
	}
}

func TestLookUpLagsBehind(t *testing.T) {
	t.Parallel()
	const delay = 200 * time.Millisecond
	c := open(t, provider.Options{Delay: delay})
	before := time.Now()
	charged := c.charge("order-1")
	c.answered(charged, 201)
	if r := c.lookUp("order-1"); time.Since(before) < delay {
		c.answered(r, 404)
	}
	until(t, "the look-up finds it", func() bool { return c.lookUp("order-1").status == 200 })
	if time.Since(before) < delay {
		t.Errorf("found after %v, before its time", time.Since(before))
	}
	if r := c.lookUp("order-1"); r.body != charged.body {
		t.Errorf("the look-up says %s, the charge said %s", r.body, charged.body)
	}
	r := c.lookUp("order-2")
	c.answered(r, 404)
	if !strings.Contains(r.body, "not_found") {
		t.Errorf("the code is missing: %s", r.body)
	}
}

func TestSendOnceForAKeyForEver(t *testing.T) {
	t.Parallel()
	ledger := t.TempDir() + "/ledger.jsonl"
	paths := []string{"/parcels", "/mails"}
	var first []reply
	for range 2 { // as if restarted in between
		c := open(t, provider.Options{Ledger: ledger, Remember: time.Nanosecond})
		for i, path := range paths {
			r := c.call(long, "POST", path, "key-1", provider.SendRequest{Order: "order-1", Customer: "customer-1"})
			c.answered(r, 201)
			if first = append(first, r); first[i].body != r.body {
				t.Errorf("%s: sent twice: %s and %s", path, first[i].body, r.body)
			}
			c.answered(c.call(long, "POST", path, "key-1", provider.SendRequest{Order: "order-2"}), 422)
			c.answered(c.call(long, "POST", path, "", provider.SendRequest{Order: "order-1"}), 400)
		}
		if l := c.ledger(); len(l.Of(provider.Parcel)["order-1"]) != 1 || len(l.Of(provider.Mail)["order-1"]) != 1 {
			t.Errorf("the ledger is %+v, want one parcel and one mail", l)
		}
	}
}
