package shop

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/examples/order/orders"
	"github.com/pawlworks/pawl/steps"
)

type (
	// Hold keeps articles for an order that is not paid yet.
	Hold struct {
		Order string
	}

	// Sale is what to book: whose hold, and how it was paid.
	Sale struct {
		Order string
		Receipt
	}
)

// reserve takes the articles out of the stock and writes the order down. All
// of it commits together with the step, so it is there once.
func (s *Shop) reserve(ctx context.Context, tx pgx.Tx, o orders.Order) (Hold, error) {
	const insert = `INSERT INTO shop.orders (id, customer, sku, quantity, cents) VALUES ($1, $2, $3, $4, $5)`
	if _, err := tx.Exec(ctx, insert, o.ID, o.Customer, o.SKU, o.Quantity, o.Cents); err != nil {
		return Hold{}, err
	}
	if _, err := tx.Exec(ctx, `INSERT INTO shop.holds (order_id, sku, quantity) VALUES ($1, $2, $3)`, o.ID, o.SKU, o.Quantity); err != nil {
		return Hold{}, err
	}
	// Last, because every other order of the article waits for this row.
	const take = `UPDATE shop.stock SET on_hand = on_hand - $2 WHERE sku = $1 AND on_hand >= $2`
	tag, err := tx.Exec(ctx, take, o.SKU, o.Quantity)
	if err != nil {
		return Hold{}, err
	}
	if tag.RowsAffected() == 0 {
		return Hold{}, steps.Permanent("OUT_OF_STOCK", fmt.Errorf("less than %d of %s on hand", o.Quantity, o.SKU))
	}
	return Hold{Order: o.ID}, nil
}

// book turns the hold into a sale. From here on the shop's own tables know
// that the order is paid, and under which charge.
func (s *Shop) book(ctx context.Context, tx pgx.Tx, sale Sale) (Sale, error) {
	const paid = `UPDATE shop.orders SET charge_id = $2, looked_up = $3 WHERE id = $1 AND charge_id IS NULL`
	tag, err := tx.Exec(ctx, paid, sale.Order, sale.ChargeID, sale.LookedUp)
	if err != nil {
		return sale, err
	}
	if tag.RowsAffected() != 1 {
		return sale, steps.Permanent("NOT_HELD", fmt.Errorf("%s is unknown or paid already", sale.Order))
	}
	_, err = tx.Exec(ctx, `DELETE FROM shop.holds WHERE order_id = $1`, sale.Order)
	return sale, err
}

func toSale(h Hold, r Receipt) Sale { return Sale{Order: h.Order, Receipt: r} }
