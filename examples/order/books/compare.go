package books

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/examples/order/provider"
)

// order is a row of the shop's.
type order struct {
	ID       string
	Cents    int64
	ChargeID *string
	LookedUp bool
}

// Compare compares the provider's ledger with the shop's tables, at rest: the
// ledger must have been read after the last run had ended.
func Compare(ctx context.Context, pool *pgxpool.Pool, ledger provider.Ledger) (Report, error) {
	rows, _ := pool.Query(ctx, `SELECT id, cents, charge_id, looked_up FROM shop.orders ORDER BY id`)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[order])
	if err != nil {
		return Report{}, fmt.Errorf("books: the shop's orders: %w", err)
	}
	var r Report
	charges, parcels, mails := ledger.Of(provider.Charge), ledger.Of(provider.Parcel), ledger.Of(provider.Mail)
	known := map[string]bool{}
	for _, o := range list {
		known[o.ID] = true
		r.add(o, charges[o.ID], len(parcels[o.ID]), len(mails[o.ID]))
	}
	for _, e := range ledger { // in its order, so that reports compare
		if known[e.Order] {
			continue
		}
		known[e.Order] = true
		r.add(order{ID: e.Order}, charges[e.Order], len(parcels[e.Order]), len(mails[e.Order]))
		r.Orders--
		r.Held--
	}
	r.Stock, err = stock(ctx, pool)
	return r, err
}

// add compares one order.
func (r *Report) add(o order, charges []provider.Entry, parcels, mails int) {
	r.Orders++
	r.Charges += len(charges)
	if len(charges) > 1 {
		r.Twice = append(r.Twice, o.ID)
	}
	sent := 0
	if o.ChargeID == nil {
		r.Held++
		if len(charges) > 0 {
			r.Forgotten = append(r.Forgotten, o.ID)
		}
	} else {
		r.Paid++
		sent = 1
		if o.LookedUp {
			r.LookedUp++
		}
		if len(charges) == 0 {
			r.Unpaid = append(r.Unpaid, o.ID)
		} else if c := charges[0]; c.Cents != o.Cents || c.ID != *o.ChargeID {
			r.Wrong = append(r.Wrong, o.ID)
		}
	}
	if parcels != sent || mails != sent {
		r.Undelivered = append(r.Undelivered, o.ID)
	}
}

// stock names the articles of which the shop has lost or invented pieces.
func stock(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	const wrong = `
SELECT s.sku FROM shop.stock s
WHERE s.delivered <> s.on_hand
  + (SELECT coalesce(sum(h.quantity), 0) FROM shop.holds h WHERE h.sku = s.sku)
  + (SELECT coalesce(sum(o.quantity), 0) FROM shop.orders o WHERE o.sku = s.sku AND o.charge_id IS NOT NULL)
ORDER BY s.sku`
	rows, _ := pool.Query(ctx, wrong)
	skus, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("books: the shop's stock: %w", err)
	}
	return skus, nil
}
