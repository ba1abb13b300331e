// Package schema tells the database schema, once: the migrations, applying
// them, and whether this release can work on what it finds.
package schema

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/tern/v2/migrate"
)

// Version is the schema version that this release was written for.
const Version = 1

// ErrSchema is wrapped by the errors of Check.
var ErrSchema = errors.New("pawl: the schema does not fit this release")

//go:embed migrations/*.sql
var files embed.FS

// versionTable holds one number: the last migration applied.
const versionTable = "pawl.version"

// lock keeps migrating processes apart: the number is arbitrary, and Pawl's alone.
const lock = 7021991270615

// Migrations gives the embedded migrations, 001_….sql and on.
func Migrations() fs.FS {
	sub, err := fs.Sub(files, "migrations")
	if err != nil {
		panic(err) // the directory is embedded above
	}
	return sub
}

// Migrate brings the schema to Version. Any number of processes may do so at
// once: they wait for each other, and the later ones find nothing to do. A
// schema that is newer already is left as it is, and Check says whether this
// release can work on it. conn must be a direct connection (a transaction
// pooler loses the lock). Each migration and its version number are one
// transaction: all of it is durable when Migrate returns, or none.
func Migrate(ctx context.Context, conn *pgx.Conn) error {
	return Apply(ctx, conn, Migrations())
}

// What a database or a role may have set otherwise, and a migration relies on:
// that nothing hides PostgreSQL's own types and functions, and that it may write.
const (
	ours   = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false), pg_catalog.set_config('default_transaction_read_only', 'off', false)"
	theirs = "SELECT pg_catalog.set_config('search_path', $1, false), pg_catalog.set_config('default_transaction_read_only', $2, false)"
)

// Apply is Migrate with other migrations: for tests of what a next release may do.
func Apply(ctx context.Context, conn *pgx.Conn, from fs.FS) (err error) {
	var path, readOnly string
	if err := conn.QueryRow(ctx, "SELECT pg_catalog.current_setting('search_path'), pg_catalog.current_setting('default_transaction_read_only')").Scan(&path, &readOnly); err != nil {
		return fmt.Errorf("pawl: migrate: %w", err)
	}
	if _, err := conn.Exec(ctx, ours); err != nil {
		return fmt.Errorf("pawl: migrate: %w", err)
	}
	defer func() {
		if _, e := conn.Exec(context.WithoutCancel(ctx), theirs, path, readOnly); err == nil && e != nil {
			err = fmt.Errorf("pawl: migrate: %w", e)
		}
	}()
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", lock); err != nil {
		return fmt.Errorf("pawl: waiting for other migrations: %w", err)
	}
	defer func() {
		if _, e := conn.Exec(context.WithoutCancel(ctx), "SELECT pg_catalog.pg_advisory_unlock($1)", lock); err == nil && e != nil {
			err = fmt.Errorf("pawl: migrate: %w", e)
		}
	}()
	if _, err := conn.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS pawl"); err != nil {
		return fmt.Errorf("pawl: migrate: %w", err)
	}
	m, err := migrate.NewMigrator(ctx, conn, versionTable)
	if err != nil {
		return fmt.Errorf("pawl: migrate: %w", err)
	}
	if err := m.LoadMigrations(from); err != nil {
		return fmt.Errorf("pawl: migrate: %w", err)
	}
	at, err := m.GetCurrentVersion(ctx)
	if err != nil {
		return fmt.Errorf("pawl: migrate: %w", err)
	}
	for ; int(at) < len(m.Migrations); at++ {
		// The rights and the lock time-out of a migration are its own business: it
		// runs alone. Behind each tern resets all settings of the session.
		if _, err := conn.Exec(ctx, ours); err != nil {
			return fmt.Errorf("pawl: migrate: %w", err)
		}
		if err := m.MigrateTo(ctx, at+1); err != nil {
			return fmt.Errorf("pawl: migrate from version %d: %w", at, err)
		}
	}
	return Check(ctx, conn)
}

// Queryer is a connection, a pool or a transaction.
type Queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Check says whether this release can work on the schema it finds: at Version,
// or newer as long as no migration has declared this release too old. The
// errors wrap ErrSchema and say what to do.
func Check(ctx context.Context, db Queryer) error {
	var at, oldest int
	err := db.QueryRow(ctx, "SELECT v.version, m.oldest_code FROM pawl.version v, pawl.meta m").Scan(&at, &oldest)
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows), errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000"):
		return fmt.Errorf("%w: it is not there; run `pawl migrate` or engine.Migrate", ErrSchema)
	case err != nil:
		return fmt.Errorf("pawl: reading the schema's version: %w", err)
	case at < Version:
		return fmt.Errorf("%w: it is at version %d, this release needs %d; run `pawl migrate` or engine.Migrate", ErrSchema, at, Version)
	case oldest > Version:
		return fmt.Errorf("%w: it is at version %d and takes releases for version %d or later, this one is for %d; deploy a newer release",
			ErrSchema, at, oldest, Version)
	}
	return nil
}

// SQL is the text of the migrations after version from up to version to, for
// people whose schemas are changed by hand; it records the version as Migrate would.
func SQL(from, to int) (string, error) {
	names, err := migrate.FindMigrations(Migrations())
	if err != nil {
		return "", fmt.Errorf("pawl: migrations: %w", err)
	}
	if from < 0 || to > len(names) || from >= to {
		return "", fmt.Errorf("pawl: there are migrations from version 0 to %d, not from %d to %d", len(names), from, to)
	}
	out := "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;\nSET LOCAL search_path = pg_catalog, pg_temp;\n"
	if from == 0 {
		out += "CREATE SCHEMA IF NOT EXISTS pawl;\nCREATE TABLE " + versionTable + " (version integer NOT NULL);\nINSERT INTO " + versionTable + " VALUES (0);\n"
	}
	for i := from; i < to; i++ {
		b, err := fs.ReadFile(Migrations(), names[i])
		if err != nil {
			return "", fmt.Errorf("pawl: migrations: %w", err)
		}
		out += fmt.Sprintf("\n-- %s\n%s\n", names[i], b)
	}
	return out + fmt.Sprintf("\nUPDATE %s SET version = %d;\nCOMMIT;\n", versionTable, to), nil
}
