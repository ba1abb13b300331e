package demo

import (
	"time"

	"github.com/pawlworks/pawl/examples/order/provider"
)

// Faults are what goes wrong with Options.Faults: about every fifth charge.
func Faults() []provider.Fault {
	return []provider.Fault{
		{Mode: provider.Declined, On: provider.Charges, Rate: 0.03},
		{Mode: provider.FailBefore, Rate: 0.03},
		{Mode: provider.FailAfter, Rate: 0.03},
		{Mode: provider.TimeoutBefore, Rate: 0.02},
		{Mode: provider.TimeoutAfter, Rate: 0.02},
		{Mode: provider.Lose, Rate: 0.04},
		// Charged half a second after the shop has given up.
		{Mode: provider.Slow, Rate: 0.02, Delay: provider.Duration(timeout + 500*time.Millisecond)},
		// No key is remembered: not one charge may be sent again in the hope
		// that the provider will know it.
		{Mode: provider.Forget, Rate: 1},

		{Mode: provider.FailBefore, On: provider.Lookups, Rate: 0.05},
		{Mode: provider.TimeoutBefore, On: provider.Lookups, Rate: 0.02},

		{Mode: provider.FailBefore, On: provider.Parcels, Rate: 0.02},
		{Mode: provider.FailAfter, On: provider.Parcels, Rate: 0.02},
		{Mode: provider.Lose, On: provider.Parcels, Rate: 0.02},
		{Mode: provider.TimeoutAfter, On: provider.Mails, Rate: 0.02},
		{Mode: provider.Lose, On: provider.Mails, Rate: 0.02},
	}
}
