//go:build unix

package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	lastLine   = regexp.MustCompile(`^demo: (\d+) runs succeeded, (\d+) uncertain effects reconciled, 0 lost$`)
	workerLine = regexp.MustCompile(`worker process (\d+) works`)
)

// TestDemo runs the demo as a user does.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	p := startDemo(t, demoDir(t))
	code, text := p.wait(t)
	n, reconciled := p.last(t, code)
	if n < 1000 || reconciled < 10 {
		t.Errorf("%d runs succeeded, %d effects were reconciled: there is not much to see", n, reconciled)
	}
	for _, part := range []string{"orders", "import"} {
		if got := strings.Count(text, part+": worker process"); got < 3 {
			t.Errorf("%s: no worker was killed", part)
		}
	}
	if strings.Contains(text, "\r") {
		t.Error("headless, and something was drawn")
	}
}

// TestDemoKilled kills the demo in the middle, interrupts the next, and lets
// the third end.
func TestDemoKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	dir := demoDir(t)
	first := startDemo(t, dir, "-orders", "300")
	first.until(t, "orders:  2") // a fifth has ended
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.wait(t)
	gone(t, first)

	second := startDemo(t, dir, "-orders", "300")
	second.until(t, "goes on where that one was")
	second.until(t, "import:  1") // of the file, a tenth is done
	if err := second.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code, text := second.wait(t); code != exitFailed || !strings.HasSuffix(text, "Start me again and it goes on where it is.\n") {
		t.Errorf("interrupted: exit code %d", code)
	}
	gone(t, second)

	third := startDemo(t, dir, "-orders", "300")
	code, text := third.wait(t)
	if n, _ := third.last(t, code); n < 200 || n > 301 {
		t.Errorf("%d runs succeeded", n)
	}
	if !strings.Contains(text, "orders: 100 % (300 of 300)") {
		t.Error("the third should find all orders done")
	}

	fourth := startDemo(t, dir, "-orders", "300")
	fourth.until(t, "orders:   ")
	if strings.Contains(fourth.text.String(), "goes on where that one was") {
		t.Error("a demo that has ended was gone on with")
	}
	_ = fourth.cmd.Process.Kill()
	fourth.wait(t)
}

func TestDemoDirectoryInUse(t *testing.T) {
	t.Parallel()
	dir := demoDir(t)
	first := startDemo(t, dir, "-orders", "20")
	first.until(t, "PostgreSQL")
	second := startDemo(t, dir)
	if code, text := second.wait(t); code != exitFailed || !strings.Contains(text, strconv.Itoa(first.cmd.Process.Pid)) {
		t.Errorf("exit code %d: should name process %d", code, first.cmd.Process.Pid)
	}
	_ = first.cmd.Process.Kill()
	first.wait(t)
}

// demoProcess is a demo under way.
type demoProcess struct {
	cmd  *exec.Cmd
	out  *bufio.Reader
	text bytes.Buffer // what was read so far
}

func startDemo(t *testing.T, dir string, args ...string) *demoProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, append([]string{"demo", "-headless", "-data", dir}, args...)...)
	cmd.Env = append(os.Environ(), mainVariable+"=1")
	cmd.Stdout, cmd.Stderr = w, w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal is for it alone
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	p := &demoProcess{cmd: cmd, out: bufio.NewReader(r)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = r.Close()
		if t.Failed() {
			t.Logf("the demo said:\n%s", p.text.String())
		}
	})
	return p
}

// until reads on to a line that contains the words.
func (p *demoProcess) until(t *testing.T, words string) {
	t.Helper()
	for {
		line, err := p.out.ReadString('\n')
		p.text.WriteString(line)
		if strings.Contains(line, words) {
			return
		}
		if err != nil {
			t.Fatalf("it ended without %q", words)
		}
	}
}

// wait reads to the end: that of all its processes, which hold the pipe.
func (p *demoProcess) wait(t *testing.T) (code int, text string) {
	t.Helper()
	_, _ = io.Copy(&p.text, p.out)
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode(), p.text.String()
}

// last reads the last line of a demo that ended well.
func (p *demoProcess) last(t *testing.T, code int) (succeeded, reconciled int) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(p.text.String(), "\n"), "\n")
	found := lastLine.FindStringSubmatch(lines[len(lines)-1])
	if code != exitOK || found == nil {
		t.Fatalf("exit code %d, last line %q", code, lines[len(lines)-1])
	}
	succeeded, _ = strconv.Atoi(found[1])
	reconciled, _ = strconv.Atoi(found[2])
	return succeeded, reconciled
}

// gone waits until no worker process of the demo is left.
func gone(t *testing.T, p *demoProcess) {
	t.Helper()
	for _, found := range workerLine.FindAllStringSubmatch(p.text.String(), -1) {
		pid, _ := strconv.Atoi(found[1])
		for end := time.Now().Add(20 * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("worker process %d has outlived its demo", pid)
			}
		}
	}
}

// demoDir is a directory that every user can enter: where root runs the tests,
// the server runs under another account.
func demoDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pawl-demo-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
