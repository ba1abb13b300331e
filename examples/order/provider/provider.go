package provider

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Options say how a provider behaves when nothing goes wrong.
type Options struct {
	Ledger   string        // the file; it is made if it is not there
	Seed     uint64        // of everything that looks like chance
	Remember time.Duration // how long the key of a charge is remembered. Default: 24 hours
	Delay    time.Duration // how long the look-up does not know what has happened. Default: none
	Hang     time.Duration // longest time without an answer, should the caller not give up. Default: 1 minute
	Faults   []Fault       // switched on from the beginning
}

// Provider is the handler. Make one with Open.
type Provider struct {
	options  Options
	book     *book
	switches *switches
	mux      http.ServeMux
	closed   chan struct{} // ends what hangs

	mu     sync.Mutex
	ledger Ledger           // what is durable
	charge map[string]Entry // the memory of keys: charges and declines
	sent   map[string]Entry // parcels and mails, for ever; by kind and key
	busy   map[string]bool  // keys that are being worked on
}

// Open opens the ledger, and remembers what is in it.
func Open(o Options) (*Provider, error) {
	if o.Remember == 0 {
		o.Remember = 24 * time.Hour
	}
	if o.Hang == 0 {
		o.Hang = time.Minute
	}
	p := &Provider{
		options:  o,
		switches: &switches{seed: o.Seed, seen: map[string]int{}},
		closed:   make(chan struct{}),
		charge:   map[string]Entry{},
		sent:     map[string]Entry{},
		busy:     map[string]bool{},
	}
	if err := p.switches.set(o.Faults); err != nil {
		return nil, err
	}
	book, ledger, err := openBook(o.Ledger)
	if err != nil {
		return nil, err
	}
	p.book = book
	for _, e := range ledger {
		p.remember(e)
	}
	p.mux.HandleFunc("POST /charges", p.postCharge)
	p.mux.HandleFunc("GET /charges", p.getCharge)
	p.mux.HandleFunc("POST /parcels", func(w http.ResponseWriter, r *http.Request) { p.send(w, r, Parcel, Parcels) })
	p.mux.HandleFunc("POST /mails", func(w http.ResponseWriter, r *http.Request) { p.send(w, r, Mail, Mails) })
	p.mux.HandleFunc("GET /ledger", p.getLedger)
	p.mux.HandleFunc("GET /counts", p.getCounts)
	p.mux.HandleFunc("GET /switches", p.getSwitches)
	p.mux.HandleFunc("POST /switches", p.postSwitches)
	return p, nil
}

func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

// Close lets go of requests that hang, and of the ledger. The server in front
// of the provider is to be shut down first, or in the meantime.
func (p *Provider) Close() error {
	close(p.closed)
	return p.book.close()
}

// record makes an entry durable, and only then lets anybody see it.
func (p *Provider) record(e Entry) (Entry, error) {
	e.At = time.Now()
	e, err := p.book.append(e)
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.remember(e)
	}
	return e, err
}

func (p *Provider) remember(e Entry) {
	p.ledger = append(p.ledger, e)
	switch e.Kind {
	case Charge, Decline:
		p.charge[e.Key] = e
	case Parcel, Mail:
		p.sent[string(e.Kind)+" "+e.Key] = e
	}
}

// hold keeps a second request with the same key out until the first is done.
func (p *Provider) hold(key string) (release func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy[key] {
		return nil, false
	}
	p.busy[key] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.busy, key)
	}, true
}

func (p *Provider) getLedger(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	ledger := append(Ledger{}, p.ledger...)
	p.mu.Unlock()
	// Entries that were synced together may have been remembered in another order.
	slices.SortFunc(ledger, func(a, b Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	answer(w, http.StatusOK, ledger)
}

func (p *Provider) getCounts(w http.ResponseWriter, _ *http.Request) {
	counts := map[Kind]int{}
	p.mu.Lock()
	for _, e := range p.ledger {
		counts[e.Kind]++
	}
	p.mu.Unlock()
	answer(w, http.StatusOK, counts)
}

func (p *Provider) getSwitches(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, p.switches.list())
}

func (p *Provider) postSwitches(w http.ResponseWriter, r *http.Request) {
	var faults []Fault
	if !read(w, r, &faults) {
		return
	}
	if err := p.switches.set(faults); err != nil {
		refuse(w, http.StatusBadRequest, "bad_switch", err.Error())
		return
	}
	p.getSwitches(w, r)
}

// read decodes the whole body: the server notices that a caller has given up
// only once it has read all that he sent.
func read(w http.ResponseWriter, r *http.Request, v any) bool {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(v)
	if err != nil {
		refuse(w, http.StatusBadRequest, "bad_body", err.Error())
	}
	return err == nil
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // whoever does not hear it asks again
}

// Refusal is the body of every answer that is not a success.
type Refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	answer(w, status, Refusal{code, message})
}
