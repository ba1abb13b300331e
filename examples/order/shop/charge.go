package shop

import (
	"context"
	"errors"

	"github.com/pawlworks/pawl/examples/order/orders"
	"github.com/pawlworks/pawl/steps"
)

type (
	// Charge is what a customer owes.
	Charge struct {
		Order    string
		Customer string
		Cents    int64
	}

	// Receipt says that he paid.
	Receipt struct {
		ChargeID string
		LookedUp bool // the answer never came; the look-up found the charge
	}
)

// charge sends the charge. Only two errors are definite, and marked so. With
// any other (a 500, a time-out, half an answer) the card may have been
// charged, so the error goes out as it is: looked up before anyone tries again.
func (s *Shop) charge(ctx context.Context, c Charge) (Receipt, error) {
	r, err := s.Pay.Charge(ctx, steps.IdempotencyKey(ctx), c)
	switch {
	case errors.Is(err, ErrDeclined):
		return r, steps.Permanent("DECLINED", err)
	case errors.Is(err, ErrNotSent):
		return r, steps.Transient(err)
	}
	return r, err
}

// findCharge asks what became of the charge, under the key that charge sent.
func (s *Shop) findCharge(ctx context.Context, c Charge) (steps.Verdict[Receipt], error) {
	r, found, err := s.Pay.Find(ctx, steps.IdempotencyKey(ctx), c.Order)
	if err != nil {
		return steps.StillUnknown[Receipt](0), err
	}
	if !found {
		return steps.NeverHappened[Receipt](), nil
	}
	return steps.Happened(r), nil
}

func toCharge(o orders.Order, _ Hold) Charge {
	return Charge{Order: o.ID, Customer: o.Customer, Cents: o.Cents}
}
