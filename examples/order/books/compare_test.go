package books_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/pawlworks/pawl/examples/order/books"
	"github.com/pawlworks/pawl/examples/order/provider"
	"github.com/pawlworks/pawl/examples/order/shop"
	"github.com/pawlworks/pawl/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// An auditor who finds nothing proves nothing, unless he finds what is there.
func TestCompare(t *testing.T) {
	t.Parallel()
	charge := provider.Entry{Kind: provider.Charge, ID: "charge-1", Order: "order-1", Cents: 100}
	parcel := provider.Entry{Kind: provider.Parcel, ID: "parcel-2", Order: "order-1"}
	mail := provider.Entry{Kind: provider.Mail, ID: "mail-3", Order: "order-1"}
	again, dear, stranger := charge, charge, charge
	again.ID, dear.Cents, stranger.Order = "charge-4", 101, "order-9"

	const (
		reserved = `
			INSERT INTO shop.orders (id, customer, sku, quantity, cents) VALUES ('order-1', 'customer-1', 'sku-01', 2, 100);
			INSERT INTO shop.holds (order_id, sku, quantity) VALUES ('order-1', 'sku-01', 2);
			UPDATE shop.stock SET on_hand = on_hand - 2 WHERE sku = 'sku-01';`
		booked = reserved + `
			UPDATE shop.orders SET charge_id = 'charge-1';
			DELETE FROM shop.holds;`
	)
	one := []string{"order-1"}
	for _, test := range []struct {
		name   string
		tables string
		ledger provider.Ledger
		want   books.Report
	}{
		{"nothing", ``, nil, books.Report{}},
		{"paid", booked, provider.Ledger{charge, parcel, mail}, books.Report{Orders: 1, Paid: 1, Charges: 1}},
		{"looked up", booked + `UPDATE shop.orders SET looked_up = true`, provider.Ledger{charge, parcel, mail},
			books.Report{Orders: 1, Paid: 1, Charges: 1, LookedUp: 1}},
		{"declined", reserved, provider.Ledger{{Kind: provider.Decline, Order: "order-1"}}, books.Report{Orders: 1, Held: 1}},
		{"charged twice", booked, provider.Ledger{charge, parcel, mail, again},
			books.Report{Orders: 1, Paid: 1, Charges: 2, Twice: one}},
		{"charged and forgotten", reserved, provider.Ledger{charge}, books.Report{Orders: 1, Held: 1, Charges: 1, Forgotten: one}},
		{"charged, of an order that nobody knows", ``, provider.Ledger{stranger},
			books.Report{Charges: 1, Forgotten: []string{"order-9"}}},
		{"never charged", booked, provider.Ledger{parcel, mail}, books.Report{Orders: 1, Paid: 1, Unpaid: one}},
		{"charged too much", booked, provider.Ledger{dear, parcel, mail}, books.Report{Orders: 1, Paid: 1, Charges: 1, Wrong: one}},
		{"booked under another charge", booked, provider.Ledger{again, parcel, mail},
			books.Report{Orders: 1, Paid: 1, Charges: 1, Wrong: one}},
		{"never shipped", booked, provider.Ledger{charge, mail}, books.Report{Orders: 1, Paid: 1, Charges: 1, Undelivered: one}},
		{"two mails", booked, provider.Ledger{charge, parcel, mail, mail},
			books.Report{Orders: 1, Paid: 1, Charges: 1, Undelivered: one}},
		{"shipped and not paid", reserved, provider.Ledger{parcel}, books.Report{Orders: 1, Held: 1, Undelivered: one}},
		{"pieces lost", booked + `UPDATE shop.stock SET on_hand = on_hand - 1 WHERE sku = 'sku-07'`, provider.Ledger{charge, parcel, mail},
			books.Report{Orders: 1, Paid: 1, Charges: 1, Stock: []string{"sku-07"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			if err := shop.Setup(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			if _, err := pool.Exec(t.Context(), test.tables); err != nil {
				t.Fatal(err)
			}
			got, err := books.Compare(t.Context(), pool, test.ledger)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", test.want); got != want {
				t.Errorf("the report is %s\nwant %s", got, want)
			}
			w := test.want
			agree := len(w.Twice)+len(w.Forgotten)+len(w.Unpaid)+len(w.Wrong)+len(w.Undelivered)+len(w.Stock) == 0
			if err := got.Err(); (err == nil) != agree {
				t.Errorf("Err is %v; do the books agree: %v", err, agree)
			}
		})
	}
}
