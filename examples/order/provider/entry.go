package provider

import "time"

// Kind says what an Entry of the ledger is.
type Kind string

// The kinds of entry. Charge is the one that costs somebody money.
const (
	Charge  Kind = "charge"
	Decline Kind = "decline"
	Parcel  Kind = "parcel"
	Mail    Kind = "mail"
)

// Entry is one line of the ledger: something that happened in the world.
type Entry struct {
	Seq      int64     `json:"seq"`
	ID       string    `json:"id"`
	Kind     Kind      `json:"kind"`
	Key      string    `json:"key"`
	Order    string    `json:"order"`
	Customer string    `json:"customer"`
	Cents    int64     `json:"cents,omitempty"`
	At       time.Time `json:"at"`
}

// same tells whether e was asked for with the body that other was asked for
// with: a key stands for one request, not for a second one like it.
func (e Entry) same(other Entry) bool {
	return e.Order == other.Order && e.Customer == other.Customer && e.Cents == other.Cents
}

// Ledger is everything that has happened, in order.
type Ledger []Entry

// Of returns the entries of one kind by order.
func (l Ledger) Of(kind Kind) map[string][]Entry {
	of := map[string][]Entry{}
	for _, e := range l {
		if e.Kind == kind {
			of[e.Order] = append(of[e.Order], e)
		}
	}
	return of
}
