package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/pawlworks/pawl/cmd/pawl/internal/demo"
	"github.com/pawlworks/pawl/internal/otelsetup"
)

// runDemo runs the examples.
func runDemo(ctx context.Context, c *call) error {
	o := demo.Options{Out: c.out, ErrOut: c.errOut}
	headless := c.flags.Bool("headless", false, "tell in lines, for a log; on a terminal progress is drawn otherwise")
	c.flags.BoolVar(&o.Fresh, "fresh", false, "start over, whatever an earlier demo that did not end has left")
	c.flags.StringVar(&o.Dir, "data", "", "`directory` of the demo's data; default: pawl/demo in the user's cache")
	c.flags.IntVar(&o.Orders, "orders", 0, "how many orders; 0: all 1,200 of the example's file")
	if err := c.parse(); err != nil {
		return err
	}
	if c.flags.NArg() > 0 {
		return usagef("%q is not understood", c.flags.Arg(0))
	}
	o.Bar = !*headless && isTerminal(c.out)
	err := otelsetup.Main(ctx, func(ctx context.Context) error { return demo.Run(ctx, o) })
	if errors.Is(err, demo.ErrStopped) {
		return errTold
	}
	return err
}

// isTerminal is good enough for choosing how to show progress.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
