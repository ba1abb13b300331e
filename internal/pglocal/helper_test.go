//go:build unix

package pglocal_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pawlworks/pawl/internal/pglocal"
)

// The test binary is its own helper: with this variable set it starts a server
// (the value is Options.Dir, or "-" for a throw-away), says where it is, and
// holds it until it is killed or its standard input ends.
const holdVariable = "PAWL_TEST_PGLOCAL_HOLD"

func TestMain(m *testing.M) {
	// These tests are about servers of our own.
	_ = os.Unsetenv("PAWL_DATABASE_URL")
	if dir := os.Getenv(holdVariable); dir != "" {
		os.Exit(hold(strings.TrimPrefix(dir, "-")))
	}
	os.Exit(m.Run())
}

func hold(dir string) int {
	signal.Ignore(os.Interrupt) // for the test that sends one to the group
	s, err := pglocal.Start(context.Background(), pglocal.Options{Dir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(s.Pid(), s.URL("postgres"))
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := s.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// holder is a helper process and the server that it owns.
type holder struct {
	cmd   *exec.Cmd
	stdin io.Closer
	pid   int
	url   string
}

func startHolder(t *testing.T, dir string) *holder {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if dir == "" {
		dir = "-"
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), holdVariable+"="+dir)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := &holder{cmd: cmd, stdin: stdin}
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the helper said nothing: %v", err)
	}
	if _, err := fmt.Sscan(line, &h.pid, &h.url); err != nil {
		t.Fatalf("the helper said %q", line)
	}
	return h
}

// kill ends the helper as kill -9 does.
func (h *holder) kill(t *testing.T) {
	t.Helper()
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.cmd.Wait()
}

// openDir is a temporary directory that every user can enter; t.TempDir's is
// root's alone when root runs the tests.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pawl-pglocal-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func start(t *testing.T, o pglocal.Options) *pglocal.Server {
	t.Helper()
	s, err := pglocal.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// query returns the one value that the statement yields.
func query(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var value string
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil && err != pgx.ErrNoRows {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// dataDir asks the server itself.
func dataDir(t *testing.T, url string) string {
	t.Helper()
	return query(t, url, "SHOW data_directory")
}

// eventually looks again and again at something that another process does and
// tells nobody about.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("after 30 s: not %s", what)
}

func running(pid int) bool {
	if text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline")); err == nil {
		return len(text) > 0 // a zombie's is empty
	}
	return syscall.Kill(pid, 0) == nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
