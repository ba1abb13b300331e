package demo

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/examples/order/books"
	"github.com/pawlworks/pawl/examples/order/provider"
)

// result is what the last line tells.
type result struct {
	succeeded, declined int
	reconciled          int // effects whose outcome was unknown, settled by asking
	lost                int // runs that did not end as they must
}

// compare compares what the outside world did with what the database says.
func (d *demo) compare(ctx context.Context) (result, error) {
	ledger, err := provider.Admin{URL: d.provider.URL}.Ledger(ctx)
	if err != nil {
		return result{}, err
	}
	report, err := books.Compare(ctx, d.pool, ledger)
	if err != nil {
		return result{}, err
	}
	d.say("%6d orders: %d paid, %d declined by the provider", report.Orders, report.Paid, report.Held)
	d.say("%6d charges in the provider's ledger; %d of their answers never came, and were found by asking", report.Charges, report.LookedUp)
	d.say("%6d charged twice, %d charged and forgotten", len(report.Twice), len(report.Forgotten))
	rows, err := d.compareImport(ctx)
	if err != nil {
		return result{}, errors.Join(report.Err(), err)
	}
	d.say("%6d rows imported, equal to the file, row for row", rows)
	r, err := d.count(ctx)
	if err != nil {
		return r, err
	}
	r.lost += len(report.Forgotten)
	if err := d.doctor(ctx); err != nil {
		return r, errors.Join(report.Err(), err)
	}
	if r.lost > 0 {
		return r, errors.Join(report.Err(), fmt.Errorf("%d lost", r.lost))
	}
	return r, report.Err()
}

// count reads how the runs ended, and what the reconciler settled: an effect
// that had happened, or one that had not and may be tried again.
func (d *demo) count(ctx context.Context) (r result, err error) {
	var all, recovered int
	err = d.pool.QueryRow(ctx, `
		SELECT count(*), count(*) FILTER (WHERE outcome = 'succeeded'),
		       count(*) FILTER (WHERE outcome = 'failed' AND EXISTS (SELECT FROM pawl.history h
		         WHERE h.shard = r.shard AND h.run_id = r.id AND h.event = 'dead' AND h.code = 'DECLINED')),
		       (SELECT count(*) FROM pawl.history WHERE event IN ('settled', 'repeat') AND writer = 'reconciler'),
		       (SELECT count(*) FROM pawl.history WHERE writer = 'recovery' AND event IN ('lapsed', 'uncertain'))
		  FROM pawl.run r`).Scan(&all, &r.succeeded, &r.declined, &r.reconciled, &recovered)
	if err != nil {
		return r, err
	}
	r.lost = all - r.succeeded - r.declined
	d.say("%6d steps were taken back from workers that had been killed", recovered)
	return r, nil
}

// compareImport compares the table with the file, which the library reads here.
func (d *demo) compareImport(ctx context.Context) (n int, err error) {
	file, err := sample()
	if err != nil {
		return 0, err
	}
	text, err := os.Open(file.Path)
	if err != nil {
		return 0, err
	}
	defer text.Close()
	want := csv.NewReader(text)
	if _, err := want.Read(); err != nil { // the header
		return 0, err
	}
	rows, err := d.pool.Query(ctx, "SELECT * FROM "+pgx.Identifier{file.Schema, "rows"}.Sanitize()+" ORDER BY line")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for ; rows.Next(); n++ {
		values, err := rows.Values()
		if err != nil {
			return n, err
		}
		fields, err := want.Read()
		if err != nil || !slices.EqualFunc(values[1:], fields, func(v any, f string) bool { return v == f }) {
			return n, fmt.Errorf("row %d of the import is %q, in the file %q (%w)", n+1, values, fields, err)
		}
	}
	if _, err := want.Read(); rows.Err() == nil && err != io.EOF {
		return n, fmt.Errorf("the import has %d rows, the file more", n)
	}
	return n, rows.Err()
}

// doctor lets the engine look for what must never be there.
func (d *demo) doctor(ctx context.Context) error {
	violations, err := d.engine.Doctor(ctx)
	if err != nil {
		return err
	}
	for _, v := range violations {
		d.say("doctor: %v", v)
	}
	if len(violations) > 0 {
		return fmt.Errorf("the doctor found %d violations", len(violations))
	}
	d.say("doctor: ok, every run has what it must have")
	return nil
}
