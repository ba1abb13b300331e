// Command order fulfils 1,200 orders with a payment provider that declines,
// fails, hangs, forgets and loses answers, and compares the books at the end.
//
//	go run ./examples/order
//
// It uses the database that PAWL_DATABASE_URL names, or else a throw-away
// server. With -dir the data is kept: kill the process in the middle, by any
// means, run it again, and it goes on where it was.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/examples/order/demo"
	"github.com/pawlworks/pawl/internal/otelsetup"
	"github.com/pawlworks/pawl/internal/pglocal"
)

func main() {
	if code, ok := demo.Child(); ok {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("stopped in the middle; where the data is kept, running again goes on: %w", err)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	o := demo.Options{Out: os.Stdout}
	flag.IntVar(&o.Orders, "orders", 0, "how many orders; 0: all of the file")
	flag.BoolVar(&o.Faults, "faults", true, "let the provider decline, fail, hang, forget and lose answers")
	dir := flag.String("dir", "", "`directory` that keeps the data; default: nothing is kept, unless PAWL_DATABASE_URL is set")
	flag.Parse()

	var local pglocal.Options
	if *dir != "" {
		local.Dir = filepath.Join(*dir, "postgres")
		o.Ledger = filepath.Join(*dir, "ledger.jsonl")
		if err := os.MkdirAll(*dir, 0o755); err != nil {
			return err
		}
	}
	db, err := pglocal.Open(ctx, local)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if db.Server != nil && *dir == "" { // the ledger is thrown away with the database
		away, err := os.MkdirTemp("", "pawl-order-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(away)
		o.Ledger = filepath.Join(away, "ledger.jsonl")
	}
	config, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		return err
	}
	config.MaxConns = max(config.MaxConns, demo.Conns)
	if o.Pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	defer o.Pool.Close()
	return otelsetup.Main(ctx, func(ctx context.Context) error { _, err := demo.Run(ctx, o); return err })
}
