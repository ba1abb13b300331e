// Package books compares what the provider did with what the shop wrote down.
// It is the auditor: the only one who sees both.
package books

import (
	"errors"
	"fmt"
)

// Report is what a comparison found. The lists name orders, and are empty when
// the books agree.
type Report struct {
	Orders   int // in the shop's tables
	Paid     int // of those
	Held     int // not paid: declined, or not done yet
	Charges  int // in the ledger
	LookedUp int // paid orders whose charge was found by asking

	Twice       []string // charged more than once
	Forgotten   []string // charged, and not paid as far as the shop knows
	Unpaid      []string // paid as far as the shop knows, and never charged
	Wrong       []string // charged another amount, or booked under another charge
	Undelivered []string // paid, but not sent one parcel and one mail; or sent, but not paid
	Stock       []string // articles whose pieces are not all on hand, held or sold
}

// Err is nil if the books agree. While runs are under way they need not.
func (r Report) Err() error {
	var errs []error
	for _, p := range []struct {
		names []string
		what  string
	}{
		{r.Twice, "charged more than once"},
		{r.Forgotten, "charged and not booked"},
		{r.Unpaid, "booked as paid and never charged"},
		{r.Wrong, "charged another amount, or booked under another charge"},
		{r.Undelivered, "paid and not delivered once, or delivered and not paid"},
		{r.Stock, "articles with pieces missing or too many"},
	} {
		if n := len(p.names); n > 0 {
			errs = append(errs, fmt.Errorf("%d %s: %s", n, p.what, some(p.names)))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("the books do not agree: %w", errors.Join(errs...))
}

func some(names []string) string {
	const most = 10
	if len(names) > most {
		return fmt.Sprintf("%v and %d more", names[:most], len(names)-most)
	}
	return fmt.Sprint(names)
}
