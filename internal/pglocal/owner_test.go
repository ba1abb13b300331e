//go:build unix

package pglocal_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pawlworks/pawl/internal/pglocal"
)

func TestOwnerKilled(t *testing.T) {
	t.Parallel()
	h := startHolder(t, "")
	home := filepath.Dir(dataDir(t, h.url))
	h.kill(t)
	eventually(t, "ended and removed", func() bool { return !running(h.pid) && !exists(home) })
}

func TestOwnerKilledKeepsData(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "db")
	h := startHolder(t, dir)
	query(t, h.url, "CREATE TABLE kept AS SELECT 'here' AS answer")
	h.kill(t)
	// At once: the watchdog may still be stopping the other server.
	s := start(t, pglocal.Options{Dir: dir})
	if running(h.pid) {
		t.Error("two servers on one directory")
	}
	if got := query(t, s.URL("postgres"), "SELECT answer FROM kept"); got != "here" {
		t.Errorf("the kept table holds %q", got)
	}
}

// TestOrphan kills the watchdog first: now only the next start can clean up.
func TestOrphan(t *testing.T) {
	t.Setenv("TMPDIR", openDir(t)) // other packages' tests sweep the usual one
	h := startHolder(t, "")
	home := filepath.Dir(dataDir(t, h.url))
	if n := killWatchdogs(t, h.cmd.Process.Pid); n != 1 {
		t.Fatalf("killed %d watchdogs", n)
	}
	h.kill(t)
	if !running(h.pid) {
		t.Fatal("the server ended by itself; the test shows nothing")
	}
	start(t, pglocal.Options{})
	eventually(t, "ended and removed", func() bool { return !running(h.pid) && !exists(home) })
}

func killWatchdogs(t *testing.T, parent int) (killed int) {
	t.Helper()
	out, err := exec.Command("ps", "-A", "-ww", "-o", "pid=,ppid=,command=").Output()
	if err != nil {
		t.Skip("no ps here: ", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[1] != strconv.Itoa(parent) || !strings.HasPrefix(fields[2], "/bin/sh") {
			continue
		}
		pid, _ := strconv.Atoi(fields[0])
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		killed++
	}
	return killed
}

// TestForeignPid plants another process's number in the pid file of a dead
// owner's home; that process must not be harmed.
func TestForeignPid(t *testing.T) {
	t.Parallel()
	bystander := exec.Command("sleep", "600")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bystander.Process.Kill(); _ = bystander.Wait() }()
	dir := filepath.Join(openDir(t), "db")
	s := start(t, pglocal.Options{Dir: dir})
	data := dataDir(t, s.URL("postgres"))
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	pidFile := filepath.Join(data, "postmaster.pid")
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(bystander.Process.Pid)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, pglocal.Options{Dir: dir})
	if !running(bystander.Process.Pid) {
		t.Error("a bystander was killed")
	}
}

func TestSecondOwnerIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "db")
	h := startHolder(t, dir)
	_, err := pglocal.Start(t.Context(), pglocal.Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "process "+strconv.Itoa(h.cmd.Process.Pid)) {
		t.Fatalf("error %v does not name process %d", err, h.cmd.Process.Pid)
	}
	query(t, h.url, "SELECT 'unharmed'")
	_ = h.stdin.Close()
	if err := h.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	start(t, pglocal.Options{Dir: dir})
}

func TestInterruptAtTheTerminal(t *testing.T) {
	t.Parallel()
	h := startHolder(t, "")
	if err := syscall.Kill(-h.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got := query(t, h.url, "SELECT 'unharmed'"); got != "unharmed" {
		t.Error(got)
	}
}

// TestFreshCache has several processes run into an empty cache together.
func TestFreshCache(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("runs as an ordinary user, from TestOrdinaryUser; root's cache is the machine's")
	}
	t.Setenv("HOME", openDir(t))
	t.Setenv("XDG_CACHE_HOME", "")
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			s, err := pglocal.Start(t.Context(), pglocal.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	clusters, _ := filepath.Glob(filepath.Join(cache, "pawl", "cluster-*[0-9a-f]"))
	leftovers, _ := filepath.Glob(filepath.Join(cache, "pawl", "new-*"))
	if len(clusters) != 1 || len(leftovers) != 0 {
		t.Errorf("the cache holds %v and %v", clusters, leftovers)
	}
}

// TestOrdinaryUser runs the tests again as nobody, if root runs them.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("everything here runs as an ordinary user already")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	dir := openDir(t)
	binary := filepath.Join(dir, "test")
	copyBinary(t, binary)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-test.v", "-test.run",
		"TestThrowAway|TestKillAndRestart|TestKeptData|TestOwnerKilled$|TestFreshCache|TestDownload")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir, "XDG_CACHE_HOME=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("as nobody: %v\n%s", err, &out)
	}
	if n := strings.Count(out.String(), "--- PASS"); n < 6 {
		t.Errorf("only %d tests ran as nobody\n%s", n, &out)
	}
}

func copyBinary(t *testing.T, to string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
