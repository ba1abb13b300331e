package provider

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Main is the provider's process: it says on stdout where it listens, and
// serves until it is told to stop. It returns the exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := serve(ctx, args, stdin, stdout, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 2
	case err != nil:
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	var o Options
	flags := flag.NewFlagSet("provider", flag.ContinueOnError)
	flags.SetOutput(stderr)
	addr := flags.String("addr", "127.0.0.1:0", "`address` to listen on; port 0: a free one")
	tied := flags.Bool("tied", false, "stop when the standard input ends: with the process that started this one, however it ends")
	flags.StringVar(&o.Ledger, "ledger", "ledger.jsonl", "`file` of the ledger")
	flags.Uint64Var(&o.Seed, "seed", 1, "`number` that all chance comes from")
	flags.DurationVar(&o.Remember, "remember", 24*time.Hour, "how long the key of a charge is remembered")
	flags.DurationVar(&o.Delay, "delay", 0, "how long the look-up does not know what has happened")
	flags.Func("fault", "a `fault`, such as lose:rate=0.1 or slow:next=3,delay=2s,orders=order-00,on=parcels; may be repeated", func(text string) error {
		f, err := ParseFault(text)
		o.Faults = append(o.Faults, f)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	p, err := Open(o)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return errors.Join(err, p.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if *tied {
		signal.Ignore(os.Interrupt) // a Ctrl-C is for the process in front of us, which may still need us to stop cleanly
		go func() {
			_, _ = io.Copy(io.Discard, stdin)
			cancel()
		}()
	}
	server := &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(stderr, "provider: ", 0)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Fprintf(stdout, "http://%s\n", listener.Addr())
	select {
	case err = <-served:
	case <-ctx.Done():
		err = server.Close() // at once: callers are made for worse
	}
	return errors.Join(err, p.Close())
}
