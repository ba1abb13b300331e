package provider

import (
	"net/http"
	"time"
)

// ChargeRequest is the body of POST /charges.
type ChargeRequest struct {
	Order    string `json:"order"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
}

// ChargeAnswer is what has become of a charge: the answer of POST and of GET.
type ChargeAnswer struct {
	ID     string `json:"id"`
	Order  string `json:"order"`
	Cents  int64  `json:"cents"`
	Status string `json:"status"`         // succeeded, or declined
	Code   string `json:"code,omitempty"` // why it was declined
}

// postCharge charges a card, once for a key that is remembered:
//
//   - 201 charged, 402 declined: both definite, both stored and replayed
//   - 409 the same key is being worked on
//   - 422 the key is another request's
func (p *Provider) postCharge(w http.ResponseWriter, r *http.Request) {
	var body ChargeRequest
	if !read(w, r, &body) {
		return
	}
	key := r.Header.Get("Idempotency-Key")
	if key == "" || body.Order == "" || body.Cents <= 0 {
		refuse(w, http.StatusBadRequest, "bad_request", "a charge needs an Idempotency-Key, an order and more than 0 cents")
		return
	}
	release, ok := p.hold(key)
	if !ok {
		refuse(w, http.StatusConflict, "key_in_use", "a request with this key is being worked on")
		return
	}
	// Freed before an answer is held back: a caller who has given up may ask again.
	v := p.switches.visit(Charges, body.Order)
	e, replayed, ok := func() (Entry, bool, bool) {
		defer release()
		if !p.before(w, r, v) {
			return Entry{}, false, false
		}
		return p.chargeOnce(w, v, Entry{Key: key, Order: body.Order, Customer: body.Customer, Cents: body.Cents})
	}()
	if !ok || !p.after(w, r, v) {
		return
	}
	if replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	status := http.StatusCreated
	if e.Kind == Decline {
		status = http.StatusPaymentRequired
	}
	answer(w, status, chargeAnswer(e))
}

// chargeOnce returns what the key stands for, and charges if it is new.
func (p *Provider) chargeOnce(w http.ResponseWriter, v visit, e Entry) (_ Entry, replayed, ok bool) {
	if old, known := p.remembered(e.Key, v); known {
		if !old.same(e) {
			refuse(w, http.StatusUnprocessableEntity, "key_reused", "this key belongs to another request")
			return e, false, false
		}
		return old, true, true
	}
	e.Kind = Charge
	if _, hit := v.hit(Declined); hit {
		e.Kind = Decline
	}
	e, err := p.record(e)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "ledger", err.Error())
		return e, false, false
	}
	return e, false, true
}

// remembered looks into the memory of keys, which is shorter than the ledger.
func (p *Provider) remembered(key string, v visit) (Entry, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.charge[key]
	if !ok {
		return Entry{}, false
	}
	if _, forgotten := v.hit(Forget); forgotten || time.Since(e.At) > p.options.Remember {
		delete(p.charge, key)
		return Entry{}, false
	}
	return e, true
}

// getCharge is the look-up. It asks the ledger, not the memory of keys; but it
// lags behind: what has only just happened it says it has not found.
func (p *Provider) getCharge(w http.ResponseWriter, r *http.Request) {
	key, order := r.URL.Query().Get("key"), r.URL.Query().Get("order") // the order is for the switches
	if !p.before(w, r, p.switches.visit(Lookups, order)) {
		return
	}
	e, ok := p.lookUp(key)
	if !ok {
		refuse(w, http.StatusNotFound, "not_found", "no charge of this key is known, so far")
		return
	}
	answer(w, http.StatusOK, chargeAnswer(e))
}

// lookUp finds what a key stands for: a charge, if there is one, whatever has
// been declined under a key that was then forgotten.
func (p *Provider) lookUp(key string) (found Entry, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.ledger {
		if e.Key != key || time.Since(e.At) < p.options.Delay {
			continue
		}
		switch e.Kind {
		case Charge:
			return e, true
		case Decline:
			found, ok = e, true
		}
	}
	return found, ok
}

func chargeAnswer(e Entry) ChargeAnswer {
	a := ChargeAnswer{ID: e.ID, Order: e.Order, Cents: e.Cents, Status: "succeeded"}
	if e.Kind == Decline {
		a.Status, a.Code = "declined", "card_declined"
	}
	return a
}
