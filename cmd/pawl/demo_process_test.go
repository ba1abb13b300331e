//go:build unix

package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

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
