package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/pawlworks/pawl/steps"
)

// effBank is a payment provider behind HTTP with the manners of real ones: it
// remembers idempotency keys, keeps a ledger, and can be asked by key, though a
// charge is seen there only a while after it was booked. Each order brings the
// switches with which the provider treats its requests, one after another;
// after the last it behaves.
type effBank struct {
	server *httptest.Server
	client *http.Client

	mu      sync.Mutex
	memory  map[string]string     // key to receipt
	ledger  map[string][]effEntry // by order: more than one entry is money lost
	asked   map[string]int        // charges asked for, by order
	used    map[string]bool       // switches that took place, by name
	quit    chan struct{}
	pending sync.WaitGroup
}

type effEntry struct {
	Key, Receipt string
	at           time.Time
}

// effOrder is what is to be charged.
type effOrder struct {
	ID        string
	Switches  []string `json:",omitempty"`
	Forgetful bool     `json:",omitempty"` // the provider remembers none of its keys
}

// The switches. Nobody on this side can tell those before from those after.
const (
	effDecline    = "decline"           // a definite no
	effFailBefore = "fail before"       // 500, not charged
	effFailAfter  = "fail after"        // 500, charged
	effHangBefore = "time out before"   // no answer in time, not charged
	effHangAfter  = "time out after"    // no answer in time, charged
	effHangUp     = "hang up"           // the connection breaks, not charged
	effLoseAnswer = "lose the answer"   // the connection breaks, charged
	effLate       = "charge after all"  // no answer in time, charged a while later
	effTwice      = "fail and time out" // stands for two in a row
)

const (
	effTimeOut = 400 * time.Millisecond // of the client
	effArrives = 700 * time.Millisecond // when effLate charges
	effSeen    = 150 * time.Millisecond // when the look-up sees a charge
)

// effHeader is not Idempotency-Key: a request that has that one, net/http
// itself sends again when the connection breaks.
const effHeader = "Request-Key"

func newEffBank(t testing.TB) *effBank {
	b := &effBank{memory: map[string]string{}, ledger: map[string][]effEntry{}, asked: map[string]int{}, used: map[string]bool{}, quit: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charge", b.serveCharge)
	mux.HandleFunc("GET /charge", b.serveFind)
	b.server = httptest.NewServer(mux)
	b.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50}, Timeout: 10 * time.Second}
	t.Cleanup(func() {
		close(b.quit)
		b.pending.Wait()
		b.client.CloseIdleConnections()
		b.server.Close()
	})
	return b
}

func (b *effBank) serveCharge(w http.ResponseWriter, r *http.Request) {
	var o effOrder
	key := r.Header.Get(effHeader)
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || key == "" {
		http.Error(w, "what?", http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	how := ""
	if n := b.asked[o.ID]; n < len(o.Switches) {
		how = o.Switches[n]
		b.used[how] = true
	}
	b.asked[o.ID]++
	b.mu.Unlock()
	switch how {
	case effDecline:
		http.Error(w, "no funds", http.StatusPaymentRequired)
	case effFailBefore:
		http.Error(w, "oops", http.StatusInternalServerError)
	case effFailAfter:
		b.book(o, key)
		http.Error(w, "oops", http.StatusInternalServerError)
	case effHangBefore:
		b.hang(r)
	case effHangAfter:
		b.book(o, key)
		b.hang(r)
	case effLate:
		b.pending.Go(func() {
			select {
			case <-time.After(effArrives):
				b.book(o, key)
			case <-b.quit:
			}
		})
		b.hang(r)
	case effHangUp:
		panic(http.ErrAbortHandler)
	case effLoseAnswer:
		b.book(o, key)
		panic(http.ErrAbortHandler)
	default:
		fmt.Fprintf(w, "%q", b.book(o, key))
	}
}

func (b *effBank) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-b.quit:
	}
}

// book charges, unless the key is remembered.
func (b *effBank) book(o effOrder, key string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if receipt, ok := b.memory[key]; ok {
		return receipt
	}
	receipt := fmt.Sprintf("%s/%d", o.ID, len(b.ledger[o.ID])+1)
	b.ledger[o.ID] = append(b.ledger[o.ID], effEntry{key, receipt, time.Now()})
	if !o.Forgetful {
		b.memory[key] = receipt
	}
	return receipt
}

func (b *effBank) serveFind(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.ledger[r.URL.Query().Get("order")] {
		if e.Key == r.URL.Query().Get("key") && time.Since(e.at) > effSeen {
			fmt.Fprintf(w, "%q", e.Receipt)
			return
		}
	}
	http.Error(w, "no such charge", http.StatusNotFound)
}

// entries is what the ledger has of an order.
func (b *effBank) entries(order string) []effEntry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]effEntry(nil), b.ledger[order]...)
}

// sent counts the charges asked for.
func (b *effBank) sent(order string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked[order]
}

var errEffDeclined = errors.New("declined")

// charge is a step's body: only a refusal is definite.
func (b *effBank) charge(ctx context.Context, o effOrder) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, effTimeOut)
	defer cancel()
	body, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	q, err := http.NewRequestWithContext(ctx, "POST", b.server.URL+"/charge", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	q.Header.Set(effHeader, steps.IdempotencyKey(ctx))
	receipt, err := b.do(q)
	if errors.Is(err, errEffDeclined) {
		return "", steps.Permanent("DECLINED", err)
	}
	return receipt, err
}

// find is its look-up.
func (b *effBank) find(ctx context.Context, o effOrder) (steps.Verdict[string], error) {
	q, err := http.NewRequestWithContext(ctx, "GET", b.server.URL+"/charge?order="+o.ID+"&key="+steps.IdempotencyKey(ctx), nil)
	if err != nil {
		return steps.Verdict[string]{}, err
	}
	receipt, err := b.do(q)
	switch {
	case errors.Is(err, errEffNotFound):
		return steps.NeverHappened[string](), nil
	case err != nil:
		return steps.Verdict[string]{}, err
	}
	return steps.Happened(receipt), nil
}

var errEffNotFound = errors.New("no such charge")

func (b *effBank) do(q *http.Request) (receipt string, err error) {
	a, err := b.client.Do(q)
	if err != nil {
		return "", err
	}
	defer func() { _ = a.Body.Close() }() // it was read, or does not matter
	switch a.StatusCode {
	case http.StatusOK:
		return receipt, json.NewDecoder(a.Body).Decode(&receipt)
	case http.StatusPaymentRequired:
		return "", errEffDeclined
	case http.StatusNotFound:
		return "", errEffNotFound
	}
	return "", fmt.Errorf("the provider says %s", a.Status)
}
