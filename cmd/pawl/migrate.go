package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/pawlworks/pawl/schema"
)

// runMigrate brings the schema up to date, or prints how.
func runMigrate(ctx context.Context, c *call) error {
	database := c.database()
	sql := c.flags.Bool("sql", false, "print the SQL that leads from version FROM (0: nothing is there) to version TO, and connect to nothing")
	if err := c.parse(); err != nil {
		return err
	}
	if *sql {
		return c.printSQL()
	}
	if c.flags.NArg() > 0 {
		return usagef("%q is not understood", c.flags.Arg(0))
	}
	conn, err := connect(ctx, *database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := schema.Migrate(ctx, conn); err != nil {
		return err
	}
	var at int
	if err := conn.QueryRow(ctx, "SELECT version FROM pawl.version").Scan(&at); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "migrate: the schema is at version %d\n", at)
	return err
}

func (c *call) printSQL() error {
	if c.flags.NArg() != 2 {
		return usagef("-sql needs two versions, FROM and TO; the newest is %d", schema.Version)
	}
	from, err := strconv.Atoi(c.flags.Arg(0))
	if err != nil {
		return usagef("FROM: %w", err)
	}
	to, err := strconv.Atoi(c.flags.Arg(1))
	if err != nil {
		return usagef("TO: %w", err)
	}
	text, err := schema.SQL(from, to)
	if err != nil {
		return usageError{err}
	}
	_, err = fmt.Fprint(c.out, text)
	return err
}
