//go:build unix

package pglocal_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/pawlworks/pawl/internal/pglocal"
)

func TestThrowAway(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := start(t, pglocal.Options{Settings: map[string]string{"work_mem": "7MB", "cluster_name": "it's"}, Log: &log})
	url := s.URL("postgres")
	for sql, want := range map[string]string{
		"SHOW work_mem":        "7MB",
		"SHOW cluster_name":    "it's",
		"SHOW fsync":           "off",
		"SHOW max_connections": "200",
		"SHOW server_encoding": "UTF8",
		"SELECT current_user":  "postgres",
		"SELECT datcollate FROM pg_database WHERE datname = 'template1'": "C",
	} {
		if got := query(t, url, sql); got != want {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
	data, pid := dataDir(t, url), s.Pid()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if running(pid) || exists(filepath.Dir(data)) {
		t.Errorf("process %d or %s is still there", pid, filepath.Dir(data))
	}
	if s.Pid() != 0 {
		t.Error("a stopped server has no process id")
	}
	if !strings.Contains(log.String(), "ready to accept connections") {
		t.Errorf("the log has not arrived: %s", log.String())
	}
}

func TestPasswordIsNeeded(t *testing.T) {
	t.Parallel()
	s := start(t, pglocal.Options{})
	if _, err := pgx.Connect(t.Context(), "postgres://postgres@"+s.Addr()+"/postgres"); err == nil {
		t.Error("let in without a password")
	}
}

func TestAlterSystemWins(t *testing.T) {
	t.Parallel()
	s := start(t, pglocal.Options{})
	query(t, s.URL("postgres"), "ALTER SYSTEM SET max_connections = 150")
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query(t, s.URL("postgres"), "SHOW max_connections"); got != "150" {
		t.Errorf("max_connections is %s", got)
	}
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	s := start(t, pglocal.Options{})
	url, pid := s.URL("postgres"), s.Pid()
	query(t, url, "CREATE TABLE kept AS SELECT 'yes' AS answer")

	// A backend that is busy does not notice that its postmaster died; it
	// must not survive, or the data could not be opened again.
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "BEGIN; INSERT INTO kept VALUES ('no')"); err != nil {
		t.Fatal(err)
	}
	backend := int(conn.PgConn().PID())
	busy := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "SELECT count(*) FROM generate_series(1, 100000000000)")
		busy <- err
	}()
	eventually(t, "busy", func() bool {
		return query(t, url, "SELECT count(*)::text FROM pg_stat_activity WHERE query LIKE 'SELECT count(*) FROM gen%'") == "1"
	})

	s.Kill()
	if running(pid) || running(backend) || s.Pid() != 0 {
		t.Fatal("something survived Kill")
	}
	if err := <-busy; err == nil {
		t.Fatal("the statement came to an end")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.URL("postgres") != url {
		t.Error("the address has changed")
	}
	if got := query(t, url, "SELECT string_agg(answer, ',') FROM kept"); got != "yes" {
		t.Errorf("after the crash the table holds %q", got)
	}
}

func TestKeptData(t *testing.T) {
	t.Parallel()
	// t.TempDir is closed to the server's account when root runs this, openDir
	// is not.
	for name, dir := range map[string]string{"closed": filepath.Join(t.TempDir(), "db"), "open": filepath.Join(openDir(t), "db")} {
		t.Run(name, func(t *testing.T) {
			s := start(t, pglocal.Options{Dir: dir, Durable: true})
			data := dataDir(t, s.URL("postgres"))
			if filepath.Dir(data) != dir {
				t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(data)) })
			}
			if got := query(t, s.URL("postgres"), "SHOW fsync"); got != "on" {
				t.Errorf("fsync is %s", got)
			}
			query(t, s.URL("postgres"), "CREATE TABLE kept AS SELECT 'here' AS answer")
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
			s = start(t, pglocal.Options{Dir: dir})
			if got := query(t, s.URL("postgres"), "SELECT answer FROM kept"); got != "here" {
				t.Errorf("the kept table holds %q", got)
			}
		})
	}
}

func TestTwoServersAtOnce(t *testing.T) {
	t.Parallel()
	a, b := start(t, pglocal.Options{}), start(t, pglocal.Options{})
	if a.Addr() == b.Addr() || dataDir(t, a.URL("postgres")) == dataDir(t, b.URL("postgres")) {
		t.Error("they share something")
	}
}

func TestOpen(t *testing.T) {
	t.Setenv("PAWL_DATABASE_URL", "postgres://somewhere/else")
	db, err := pglocal.Open(t.Context(), pglocal.Options{})
	if err != nil || db.URL != "postgres://somewhere/else" || db.Server != nil {
		t.Errorf("%+v, %v", db, err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	t.Setenv("PAWL_DATABASE_URL", "")
	db, err = pglocal.Open(t.Context(), pglocal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	query(t, db.URL, "SELECT 'x'")
	pid := db.Server.Pid()
	if err := db.Close(); err != nil || running(pid) {
		t.Error("still running", err)
	}
}

func TestWrongBin(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PAWL_PG_BIN", dir)
	_, err := pglocal.Start(t.Context(), pglocal.Options{})
	if err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("error %v does not name %s", err, dir)
	}
}

func TestWrongSettingIsTold(t *testing.T) {
	t.Parallel()
	_, err := pglocal.Start(t.Context(), pglocal.Options{Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("error %v does not hold the server's words", err)
	}
}
