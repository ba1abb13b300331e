package provider

import "net/http"

// SendRequest is the body of POST /parcels and POST /mails.
type SendRequest struct {
	Order    string `json:"order"`
	Customer string `json:"customer"`
}

// SendAnswer is the answer: the parcel's tracking number, or the mail's id.
type SendAnswer struct {
	ID string `json:"id"`
}

// send sends a parcel or a mail, once for each key, for ever.
func (p *Provider) send(w http.ResponseWriter, r *http.Request, kind Kind, on string) {
	var body SendRequest
	if !read(w, r, &body) {
		return
	}
	key := r.Header.Get("Idempotency-Key")
	if key == "" || body.Order == "" {
		refuse(w, http.StatusBadRequest, "bad_request", "sending needs an Idempotency-Key and an order")
		return
	}
	release, ok := p.hold(string(kind) + " " + key)
	if !ok {
		refuse(w, http.StatusConflict, "key_in_use", "a request with this key is being worked on")
		return
	}
	v := p.switches.visit(on, body.Order)
	e, ok := func() (Entry, bool) {
		defer release()
		if !p.before(w, r, v) {
			return Entry{}, false
		}
		return p.sendOnce(w, Entry{Kind: kind, Key: key, Order: body.Order, Customer: body.Customer})
	}()
	if ok && p.after(w, r, v) {
		answer(w, http.StatusCreated, SendAnswer{ID: e.ID})
	}
}

func (p *Provider) sendOnce(w http.ResponseWriter, e Entry) (Entry, bool) {
	p.mu.Lock()
	old, known := p.sent[string(e.Kind)+" "+e.Key]
	p.mu.Unlock()
	switch {
	case known && old.same(e):
		return old, true
	case known:
		refuse(w, http.StatusUnprocessableEntity, "key_reused", "this key belongs to another request")
		return e, false
	}
	e, err := p.record(e)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "ledger", err.Error())
		return e, false
	}
	return e, true
}
