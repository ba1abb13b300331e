package main

import (
	"context"
	"fmt"

	"github.com/pawlworks/pawl/engine"
)

// runDoctor prints what breaks an invariant.
func runDoctor(ctx context.Context, c *call) error {
	database := c.database()
	if err := c.parse(); err != nil {
		return err
	}
	if c.flags.NArg() > 0 {
		return usagef("%q is not understood", c.flags.Arg(0))
	}
	pool, err := openPool(ctx, *database)
	if err != nil {
		return err
	}
	defer pool.Close()
	e, err := engine.New(ctx, pool, engine.Config{})
	if err != nil {
		return err
	}
	violations, err := e.Doctor(ctx)
	if err != nil {
		return err
	}
	for _, v := range violations {
		fmt.Fprintln(c.out, v)
	}
	if len(violations) > 0 {
		fmt.Fprintf(c.out, "doctor: %d violations\n", len(violations))
		return errTold
	}
	_, err = fmt.Fprintln(c.out, "doctor: ok")
	return err
}
