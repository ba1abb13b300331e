package shop

import (
	"context"
	"errors"
	"net/http"

	"github.com/pawlworks/pawl/examples/order/orders"
	"github.com/pawlworks/pawl/steps"
)

type (
	// Sending is what goes to a customer: as a parcel, or about it as a mail.
	Sending struct {
		Order    string
		Customer string
	}

	// Mail is one that was sent.
	Mail struct {
		ID string
	}
)

func (s *Shop) ship(ctx context.Context, parcel Sending) (orders.Shipment, error) {
	tracking, err := s.Post.Parcel(ctx, steps.IdempotencyKey(ctx), parcel)
	return orders.Shipment{Tracking: tracking}, err
}

func (s *Shop) notify(ctx context.Context, mail Sending) (Mail, error) {
	id, err := s.Post.Mail(ctx, steps.IdempotencyKey(ctx), mail)
	return Mail{ID: id}, err
}

// classify gives the post's bad days the large budget. It is for ship and
// notify alone: they may be repeated, whatever happened. On charge a mark would
// say that nothing was charged, and a 500 says no such thing.
func classify(err error) error {
	var status *StatusError
	if errors.As(err, &status) && (status.Status >= 500 || status.Status == http.StatusConflict) {
		return steps.Transient(err)
	}
	return nil
}

func toSending(o orders.Order, _ Sale) Sending { return Sending{Order: o.ID, Customer: o.Customer} }
func toMail(o orders.Order) Sending            { return Sending{Order: o.ID, Customer: o.Customer} }
