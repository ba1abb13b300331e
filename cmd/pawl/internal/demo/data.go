package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/internal/pglocal"
)

const database = "demo"

// data is what the demo keeps while it has not ended: a PostgreSQL server's
// directory, and the payment provider's ledger. The two belong together: the
// ledger of a database that is no longer there would charge nobody twice, but the
// books would not agree.
type data struct {
	dir     string
	server  *pglocal.Server
	url     string
	ledger  string
	resumed bool // there was a demo that had not ended
}

// openData starts the server, and makes a new database if there is none or a
// fresh one is wanted.
func openData(ctx context.Context, dir string, fresh bool) (*data, error) {
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("where to keep the data: %w (give -data)", err)
		}
		dir = filepath.Join(cache, "pawl", "demo")
	}
	server, err := pglocal.Start(ctx, pglocal.Options{Dir: filepath.Join(dir, "postgres"), Durable: true,
		Settings: map[string]string{"max_wal_size": "256MB"}})
	if err != nil {
		return nil, err
	}
	d := &data{dir: dir, server: server, url: server.URL(database), ledger: filepath.Join(dir, "ledger.jsonl")}
	if err := d.prepare(ctx, fresh); err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return d, nil
}

func (d *data) prepare(ctx context.Context, fresh bool) error {
	return d.administer(ctx, func(conn *pgx.Conn) error {
		if fresh {
			if err := drop(ctx, conn); err != nil {
				return err
			}
		}
		err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", database).Scan(&d.resumed)
		if err != nil || d.resumed {
			return err
		}
		// The ledger first: were it removed after the database is made, a kill
		// in between would leave an old ledger to a new database.
		if err := os.Remove(d.ledger); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		_, err = conn.Exec(ctx, "CREATE DATABASE "+database)
		return err
	})
}

// remove ends the demo's data: the next one starts afresh. The empty server's
// directory stays, so that it starts sooner.
func (d *data) remove(ctx context.Context, pool *pgxpool.Pool) error {
	pool.Close()
	err := d.administer(ctx, func(conn *pgx.Conn) error { return drop(ctx, conn) })
	if err != nil {
		return err
	}
	return os.Remove(d.ledger)
}

func drop(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+database+" WITH (FORCE)")
	return err
}

// administer connects to the database that is always there.
func (d *data) administer(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, d.server.URL("postgres"))
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(context.WithoutCancel(ctx)))
}
