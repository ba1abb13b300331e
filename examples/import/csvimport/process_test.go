package csvimport_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// worker is a process that works.
type worker struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func startWorker(t *testing.T, url string, pace time.Duration) *worker {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), workVariable+"="+url, paceVariable+"="+pace.String())
	cmd.Stderr = os.Stderr
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
	w := &worker{cmd, stdin}
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the worker said %q, %v", line, err)
	}
	return w
}

// kill ends the worker as kill -9 does.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}
