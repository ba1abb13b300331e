// Package server is the bench's own PostgreSQL: a throw-away one with fsync
// and synchronous_commit on, and its databases.
package server

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/internal/pglocal"
)

// Settings are what the bench sets beside PostgreSQL's defaults. Memory and
// WAL are such that no checkpoint falls into a measurement: each begins with one.
var Settings = map[string]string{
	"shared_buffers":     "1GB",
	"max_connections":    "400",
	"max_wal_size":       "16GB",
	"min_wal_size":       "2GB",
	"checkpoint_timeout": "1h",
}

// Server is a running server.
type Server struct {
	Local      *pglocal.Server
	Admin      *pgxpool.Pool // of database "postgres"
	Version    string
	Statements bool // pg_stat_statements is loaded
	made       atomic.Int64
}

// Start starts the server that PAWL_PG_BIN names, else the newest one found.
func Start(ctx context.Context) (*Server, error) {
	settings := map[string]string{"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "none"}
	for k, v := range Settings {
		settings[k] = v
	}
	s := &Server{Statements: true}
	var err error
	if s.Local, err = pglocal.Start(ctx, pglocal.Options{Durable: true, Settings: settings}); err != nil {
		if !strings.Contains(err.Error(), "pg_stat_statements") {
			return nil, err
		}
		s.Statements = false
		if s.Local, err = pglocal.Start(ctx, pglocal.Options{Durable: true, Settings: Settings}); err != nil {
			return nil, err
		}
	}
	if err := s.open(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *Server) open(ctx context.Context) (err error) {
	config, err := pgxpool.ParseConfig(s.Local.URL("postgres"))
	if err != nil {
		return err
	}
	config.MaxConns = 4
	if s.Admin, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	if err := s.Admin.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&s.Version); err != nil {
		return err
	}
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		var on string
		if err := s.Admin.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&on); err != nil {
			return err
		}
		if on != "on" {
			return fmt.Errorf("%s is %s: what is measured without it says nothing", name, on)
		}
	}
	if s.Statements {
		_, err = s.Admin.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
	}
	return err
}

// Database makes an empty database and returns its URL.
func (s *Server) Database(ctx context.Context) (name, url string, err error) {
	name = fmt.Sprintf("bench_%d", s.made.Add(1))
	_, err = s.Admin.Exec(ctx, "CREATE DATABASE "+name)
	return name, s.Local.URL(name), err
}

// Drop drops a database.
func (s *Server) Drop(ctx context.Context, name string) error {
	_, err := s.Admin.Exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	return err
}

// Stop stops the server and removes its data.
func (s *Server) Stop() {
	if s.Admin != nil {
		s.Admin.Close()
	}
	_ = s.Local.Stop()
}
