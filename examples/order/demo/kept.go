package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// kept is what the database remembers of earlier runs of the demo.
type kept struct {
	Ledger *string
	Orders int
}

// keep notes what this run is given, and returns what holds: the ledger that
// was first, and never fewer orders than were started once, since orders that are
// still under way would make the books look wrong.
func keep(ctx context.Context, pool *pgxpool.Pool, ledger string, orders int) (k kept, err error) {
	const (
		table = `CREATE TABLE IF NOT EXISTS shop.demo (
			one boolean PRIMARY KEY DEFAULT true CHECK (one), ledger text, orders integer NOT NULL)`
		note = `INSERT INTO shop.demo AS d (ledger, orders) VALUES (nullif($1, ''), $2)
			ON CONFLICT (one) DO UPDATE SET ledger = coalesce(d.ledger, excluded.ledger), orders = greatest(d.orders, excluded.orders)
			RETURNING ledger, orders`
	)
	if _, err = pool.Exec(ctx, table); err == nil {
		err = pool.QueryRow(ctx, note, ledger, orders).Scan(&k.Ledger, &k.Orders)
	}
	if err != nil {
		return k, fmt.Errorf("demo: what earlier runs have left: %w", err)
	}
	return k, nil
}

// findLedger returns the ledger that belongs to the database: what was given,
// or what an earlier run wrote down, or a new file.
func findLedger(ctx context.Context, pool *pgxpool.Pool, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	k, err := keep(ctx, pool, "", 0)
	if err != nil {
		return "", err
	}
	if k.Ledger == nil {
		file, err := os.CreateTemp("", "pawl-order-ledger-*.jsonl")
		if err != nil {
			return "", fmt.Errorf("demo: a file for the ledger: %w", err)
		}
		if err := file.Close(); err != nil {
			return "", err
		}
		if k, err = keep(ctx, pool, file.Name(), 0); err != nil {
			return "", err
		}
	}
	if _, err := os.Stat(*k.Ledger); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("demo: %s, the ledger of the orders in this database, is gone: drop the schemas shop and pawl, or use another database", *k.Ledger)
	}
	return *k.Ledger, nil
}

// alone waits until no other process runs the demo with a provider of its own
// on this database: two would write into one ledger.
func alone(ctx context.Context, pool *pgxpool.Pool) (release func(), err error) {
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig) // the pool's are for the work
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	release = func() { _ = conn.Close(context.WithoutCancel(ctx)) } // the lock ends with the session
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(hashtext('pawl example demo'))`); err != nil {
		release()
		return nil, fmt.Errorf("demo: waiting for another demo on this database: %w", err)
	}
	return release, nil
}
