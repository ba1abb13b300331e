package main

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// databaseVariable names the database that the commands work on.
const databaseVariable = "PAWL_DATABASE_URL"

// database declares the flag that says where to connect.
func (c *call) database() *string {
	return c.flags.String("database", "", "`URL` of the database, such as postgres://user:password@host/name; default: $"+databaseVariable)
}

// address is what the flag or the environment says.
func address(given string) (string, error) {
	if url := cmp.Or(given, os.Getenv(databaseVariable)); url != "" {
		return url, nil
	}
	return "", usagef("no database: give -database URL or set %s", databaseVariable)
}

// connect opens a connection of its own: migrations hold a lock that a pooler
// would lose.
func connect(ctx context.Context, given string) (*pgx.Conn, error) {
	url, err := address(given)
	if err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, usageError{err}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return conn, nil
}

// openPool is connect for what works through a pool.
func openPool(ctx context.Context, given string) (*pgxpool.Pool, error) {
	url, err := address(given)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, usageError{err}
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return pool, nil
}
