// Package demo is `pawl demo`: both examples on a PostgreSQL of their own, with
// a worker process that is killed in the middle of each.
//
// Nothing here remembers how far it got. The database does: every part is
// started again by the same keys, so this process may be killed too, at any moment, and
// the next one goes on.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	orderdemo "github.com/pawlworks/pawl/examples/order/demo"
	"github.com/pawlworks/pawl/examples/order/provider"
)

// Options say how the demo is shown.
type Options struct {
	Out, ErrOut io.Writer
	Bar         bool   // draw progress on a terminal; else lines
	Dir         string // of the data. Default: pawl/demo in the user's cache
	Fresh       bool   // start over
	Orders      int    // Default: all of the example's file
}

// demo is one Run.
type demo struct {
	teller
	options  Options
	data     *data
	pool     *pgxpool.Pool
	provider *provider.Process
	engine   *engine.Engine // starts and works on nothing: it is asked
}

// ErrStopped is Run's error when its context has ended; it has said so.
var ErrStopped = errors.New("the demo was stopped")

// Run runs the demo to its end. When it has ended well its data is removed;
// when it is stopped or fails, the data stays for the next Run.
func Run(ctx context.Context, o Options) (err error) {
	began := time.Now()
	d := &demo{teller: teller{out: o.Out, bar: o.Bar}, options: o}
	if err := d.open(ctx); err != nil {
		return errors.Join(err, d.close())
	}
	last, err := d.tell(ctx)
	if err == nil {
		err = d.data.remove(ctx, d.pool)
	}
	err = errors.Join(err, d.close())
	if ctx.Err() != nil {
		d.say("")
		d.say("Stopped. Start me again and it goes on where it is.")
		return ErrStopped
	}
	if err != nil {
		return err
	}
	d.say("(%v; the data is removed)", time.Since(began).Round(100*time.Millisecond))
	d.say("%s", last)
	return nil
}

// open starts the server and the payment provider.
func (d *demo) open(ctx context.Context) (err error) {
	d.say("pawl demo: orders and an import, as durable runs on a PostgreSQL of their own.")
	if d.data, err = openData(ctx, d.options.Dir, d.options.Fresh); err != nil {
		return err
	}
	d.say("PostgreSQL %d on %s, fsync on; its data is in %s.", d.data.server.Version, d.data.server.Addr(), d.data.dir)
	if d.data.resumed {
		d.say("An earlier demo did not end: this one goes on where that one was (-fresh starts over).")
	}
	d.say("Kill me (kill -9 %d) or press Ctrl-C at any moment, and start me again: it goes on.", os.Getpid())
	if d.pool, err = pgxpool.New(ctx, d.data.url); err != nil {
		return err
	}
	if err := engine.Migrate(ctx, d.pool); err != nil {
		return err
	}
	if d.engine, err = engine.New(ctx, d.pool, engine.Config{}); err != nil {
		return err
	}
	d.provider, err = orderdemo.Provider(d.data.ledger)
	return err
}

func (d *demo) close() (err error) {
	if d.provider != nil {
		err = d.provider.Stop()
	}
	if d.pool != nil {
		d.pool.Close()
	}
	if d.data != nil {
		err = errors.Join(err, d.data.server.Stop())
	}
	return err
}

// tell runs the parts, and compares the books. It returns the last line.
func (d *demo) tell(ctx context.Context) (string, error) {
	d.say("")
	d.say("1. Orders. Each is a run: a durable execution of reserve, charge, ship and so on, step by step.")
	d.say("The payment provider, a process of its own, declines, fails, hangs and loses answers at about every fifth")
	d.say("charge, and remembers no idempotency key: a charge whose answer is lost must be asked for, not repeated.")
	fulfilling, err := d.orders()
	if err != nil {
		return "", err
	}
	if err := d.run(ctx, fulfilling); err != nil {
		return "", err
	}
	d.say("")
	d.say("2. An import. One run whose long step copies a public table of 32,530 rows, chunk by chunk; each chunk")
	d.say("and the cursor that stands behind it are one commit.")
	importing, err := d.importing()
	if err != nil {
		return "", err
	}
	if err := d.run(ctx, importing); err != nil {
		return "", err
	}
	d.say("")
	d.say("3. The books.")
	books, err := d.compare(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("demo: %d runs succeeded, %d uncertain effects reconciled, %d lost", books.succeeded, books.reconciled, books.lost), nil
}
