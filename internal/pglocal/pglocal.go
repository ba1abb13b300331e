// Package pglocal runs a PostgreSQL server for somebody who has none: for the
// demo, for the tests and for the code generator.
//
// It finds the server's programs on the machine (or downloads them), makes a
// data directory, and starts a postmaster on a loopback port.
//
// What holds, whatever happens to the process that started a server:
//
//   - The server ends soon after its owner: a supervising shell holds the other
//     end of a pipe and stops the server when the pipe closes. If that shell is
//     killed too, the next Start ends the orphan.
//   - Nobody else's server is touched. Before a signal is sent to a process
//     that is not our child, its command line must name our data directory,
//     and we must hold that directory's lock.
//   - A directory has one owner at a time (flock, freed by the kernel when the
//     owner dies).
//   - A Ctrl-C meant for the owner does not reach the server: both the server
//     and the shell have sessions of their own.
package pglocal

import (
	"context"
	"fmt"
	"io"
	"os"
)

// Options say how a server is to be started. The zero value is a throw-away
// server with the newest PostgreSQL on the machine.
type Options struct {
	// Dir keeps the data across starts. Empty: a directory in the temp dir
	// that Stop removes.
	Dir string

	// Bin is the directory of the programs initdb and postgres. Empty: the
	// environment's PAWL_PG_BIN, else the newest that is found.
	Bin string

	// Port on 127.0.0.1. 0: a free one.
	Port int

	// Settings are lines of postgresql.conf; they win over ours.
	Settings map[string]string

	// Durable turns fsync on. Off, the data survives a killed server but not
	// a machine that loses power, and everything is faster.
	Durable bool

	// NoDownload makes a machine without PostgreSQL an error. Default: the
	// programs are downloaded once (about 10 MB) and kept in the cache.
	NoDownload bool

	// Log receives the server's log. Nil: only its end is kept, for errors.
	Log io.Writer
}

// DB is a database to work with, either somebody's or our own.
type DB struct {
	URL    string
	Server *Server // nil if the URL came from PAWL_DATABASE_URL
}

// Open returns the database that PAWL_DATABASE_URL names, and else starts a
// server.
func Open(ctx context.Context, o Options) (*DB, error) {
	if url := os.Getenv("PAWL_DATABASE_URL"); url != "" {
		return &DB{URL: url}, nil
	}
	s, err := Start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("%w (or set PAWL_DATABASE_URL to the database of a running server)", err)
	}
	return &DB{URL: s.URL("postgres"), Server: s}, nil
}

// Close stops the server if Open started one.
func (db *DB) Close() error {
	if db.Server == nil {
		return nil
	}
	return db.Server.Stop()
}
