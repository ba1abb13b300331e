// Package shop fulfils orders: it reserves in its own tables, charges a card,
// ships and notifies. What goes wrong outside of it is in package provider; what it
// does about that is in the steps' declarations here.
package shop

import (
	"time"

	"github.com/pawlworks/pawl/examples/order/orders"
	"github.com/pawlworks/pawl/steps"
)

// Shop has the clients that the steps need. They are injected the ordinary way.
type Shop struct {
	Pay  *Payments
	Post *Post

	// LateArrival is how long after its time-out a charge may still arrive
	// at the provider, or still be hidden from its look-up: "not found"
	// counts for nothing earlier. Too short, and a card is charged twice.
	// Default: 15 minutes.
	LateArrival time.Duration

	// MaxDelay is the longest pause between two attempts, or two questions.
	// Default: 10 minutes.
	MaxDelay time.Duration
}

// Fulfil is the workflow's definition.
//
// Nothing is undone here: the hold of an order whose card was declined stays,
// with the dead run, for whoever calls the customer and then replays or
// cancels the run. The comparison of the books reports it as held.
func (s *Shop) Fulfil() steps.Definition {
	late := s.LateArrival
	if late == 0 {
		late = 15 * time.Minute
	}
	retry := steps.Retry{MaxDelay: s.MaxDelay} // the zero is the default here too

	reserve := steps.NewTx("reserve", s.reserve)
	charge := steps.New("charge", s.charge, steps.MaxRuntime(2*time.Minute)).LookUp(s.findCharge, late, retry)
	book := steps.NewTx("book", s.book)
	ship := steps.New("ship", s.ship, steps.Idempotent(steps.Forever), steps.Classifier(classify))
	notify := steps.New("notify", s.notify, steps.Idempotent(steps.Forever), steps.Classifier(classify))

	return orders.Fulfil.Define(func(f *steps.Flow, order steps.Ref[orders.Order]) steps.Ref[orders.Shipment] {
		hold := reserve.Do(f, order)
		paid := charge.Do(f, steps.Map2(order, hold, toCharge))
		sale := book.Do(f, steps.Map2(hold, paid, toSale))
		shipment := ship.Do(f, steps.Map2(order, sale, toSending))
		mail := notify.Do(f, steps.Map(order, toMail))
		return steps.Map2(shipment, mail, func(s orders.Shipment, _ Mail) orders.Shipment { return s })
	}, retry)
}

// Close lets go of the clients' idle connections.
func (s *Shop) Close() {
	s.Pay.http.CloseIdleConnections()
	s.Post.http.CloseIdleConnections()
}
