package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/internal/view"
	"github.com/pawlworks/pawl/schema"
)

// reading is a command that reads a database, and needs none of its user's code.
type reading struct {
	*call
	database *string
	json     *bool
}

func (c *call) reading() reading {
	return reading{c, c.database(), c.flags.Bool("json", false, "print JSON, one object a line, for programs")}
}

// noArgs parses a command line that has flags alone.
func (r reading) noArgs() error {
	if err := r.parse(); err != nil {
		return err
	}
	if r.flags.NArg() > 0 {
		return usagef("%q is not understood", r.flags.Arg(0))
	}
	return nil
}

// withOne parses flags before and behind one name.
func (r reading) withOne(what string) (string, error) {
	if err := r.parse(); err != nil {
		return "", err
	}
	if r.flags.NArg() == 0 {
		return "", usagef("which? give %s", what)
	}
	name := r.flags.Arg(0)
	r.args = r.flags.Args()[1:]
	if err := r.noArgs(); err != nil {
		return "", err
	}
	return name, nil
}

// open connects, and makes sure that this release can read the schema.
func (r reading) open(ctx context.Context) (*pgxpool.Pool, error) {
	pool, err := openPool(ctx, *r.database)
	if err != nil {
		return nil, err
	}
	if err := schema.Check(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// read reads in one snapshot.
func (r reading) read(ctx context.Context, fn func(*view.Reader) error) error {
	pool, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	return view.Read(ctx, pool, fn)
}
