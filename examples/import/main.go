// Command import imports a CSV file into a PostgreSQL table as a durable run,
// and shows how far it is:
//
//	go run ./examples/import [-sep ';'] [-no-header] [-data DIR] [file.csv]
//
// Without a file it imports a sample, the public listing of the IEEE's address
// blocks. It works on the database that PAWL_DATABASE_URL names, else on a server of
// its own, which is gone afterwards unless -data says where to keep its data.
//
// Kill it (kill -9) while it runs and start it again, on a database that
// stays: it goes on from the chunk committed last.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/examples/import/csvimport"
	"github.com/pawlworks/pawl/internal/otelsetup"
	"github.com/pawlworks/pawl/internal/pglocal"
)

func main() {
	sep := flag.String("sep", ",", `what parts the fields: one ASCII character, or \t`)
	noHeader := flag.Bool("no-header", false, "the first record is no header")
	data := flag.String("data", "", "keep the data of the server of our own in this directory")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: import [-sep ';'] [-no-header] [-data DIR] [file.csv]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 1 {
		flag.Usage()
		os.Exit(2)
	}
	if *sep == `\t` {
		*sep = "\t"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, pglocal.Options{Dir: *data, Durable: *data != ""}, csvimport.Options{
		Path: flag.Arg(0), Sep: *sep, NoHeader: *noHeader, Out: os.Stdout, Bar: isTerminal(os.Stdout)})
	stopped := ctx.Err() != nil
	stop()
	if stopped && errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "import: stopped; start it again to go on")
		os.Exit(1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "import:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, server pglocal.Options, o csvimport.Options) (err error) {
	db, err := pglocal.Open(ctx, server)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if o.Pool, err = pgxpool.New(ctx, db.URL); err != nil {
		return err
	}
	defer o.Pool.Close()
	if err := engine.Migrate(ctx, o.Pool); err != nil {
		return err
	}
	var sum csvimport.Summary
	if err := otelsetup.Main(ctx, func(ctx context.Context) (err error) { sum, err = csvimport.Run(ctx, o); return err }); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "import: %d rows in %s.rows, %d bad records in %[2]s.bad\n", sum.Rows, sum.Schema, sum.Bad)
	return csvimport.ShowBad(ctx, o.Pool, o.Out, sum.Schema, 5)
}

// isTerminal is good enough for choosing how to show progress.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
