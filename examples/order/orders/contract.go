// Package orders is the contract of the order example, and its file of orders:
// all that somebody needs who starts runs, and none of the steps' code.
package orders

import "github.com/pawlworks/pawl/steps"

// Fulfil takes an order to the customer's door.
var Fulfil = steps.Declare[Order, Shipment]("fulfil-order")

type (
	// Order is what somebody wants. Its id is also the key of its run.
	Order struct {
		ID       string
		Customer string
		SKU      string // of the article
		Quantity int
		Cents    int64 // for all of it
	}

	// Shipment is how an order ends well.
	Shipment struct {
		Tracking string
	}
)
