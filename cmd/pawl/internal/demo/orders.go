package demo

import (
	"context"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/examples/import/meter"
	orderdemo "github.com/pawlworks/pawl/examples/order/demo"
	"github.com/pawlworks/pawl/examples/order/orders"
)

const ordersName = "orders"

// orders is the part that fulfils them. Its worker is killed while charges are
// under way: that is the moment to be afraid of.
func (d *demo) orders() (part, error) {
	all, err := orders.All()
	wanted := int64(len(all)) // while they are being started the database has fewer
	if n := int64(d.options.Orders); n > 0 {
		wanted = min(wanted, n)
	}
	ripe := func(ctx context.Context) bool {
		_, begun, err := d.running(ctx)
		return err == nil && begun > 0
	}
	return part{name: ordersName, killAt: 0.3, ripe: ripe, text: meter.Count, progress: func(ctx context.Context) (done, total int64, err error) {
		err = d.pool.QueryRow(ctx, "SELECT count(*) FILTER (WHERE outcome IS NOT NULL), count(*) FROM pawl.run WHERE workflow = $1",
			orders.Fulfil.Name()).Scan(&done, &total)
		return done, max(total, wanted), err
	}}, err
}

// fulfil is what the worker process does. An error tells that the books do
// not agree, too.
func fulfil(ctx context.Context, pool *pgxpool.Pool) error {
	n, err := strconv.Atoi(os.Getenv(ordersVariable))
	if err != nil {
		return err
	}
	_, err = orderdemo.Run(ctx, orderdemo.Options{Pool: pool, Orders: n, Faults: true, Provider: os.Getenv(providerVariable)})
	return err
}
