//go:build unix

package pawl_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a worker of its own, to be killed and paused.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	log   *lockedBuffer
	ready chan struct{} // closed when it works
	stops chan struct{} // closed when it has been told to stop, and knows it
	ended chan struct{} // closed when it has been waited for
}

// spawn starts a worker process without waiting for anything.
func spawn(t testing.TB, r role) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{name: r.Name, cmd: exec.Command(self), log: &lockedBuffer{}, ready: make(chan struct{}), stops: make(chan struct{}), ended: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), workerVariable+"="+string(spec)), r.Env...)
	p.cmd.Stderr = p.log
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			switch lines.Text() {
			case "ready":
				close(p.ready)
			case "stopping":
				close(p.stops)
			}
		}
		_ = p.cmd.Wait() // how it ended is in ProcessState
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // ends a paused one too
		<-p.ended
		if t.Failed() {
			t.Logf("worker %s: %v\n%s", p.name, p.cmd.ProcessState, p.log)
		}
	})
	return p
}

// works waits until the process works.
func (p *process) works(t testing.TB) *process {
	t.Helper()
	select {
	case <-p.ready:
	case <-p.ended:
		t.Fatalf("worker %s ended before it was ready: %v", p.name, p.cmd.ProcessState)
	case <-time.After(patience):
		t.Fatalf("worker %s was not ready within %v", p.name, patience)
	}
	return p
}

// kill is kill -9.
func (p *process) kill(t testing.TB) {
	t.Helper()
	_ = p.cmd.Process.Kill()
	p.died(t)
}

// died waits for a process that was killed, by itself or by us.
func (p *process) died(t testing.TB) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatalf("worker %s was not dead within %v", p.name, patience)
	}
	if s, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !s.Signaled() || s.Signal() != syscall.SIGKILL {
		t.Fatalf("worker %s was not killed: %v", p.name, p.cmd.ProcessState)
	}
}

func (p *process) pause(t testing.TB)  { t.Helper(); p.signal(t, syscall.SIGSTOP) }
func (p *process) resume(t testing.TB) { t.Helper(); p.signal(t, syscall.SIGCONT) }

func (p *process) signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("worker %s: %v: %v", p.name, s, err)
	}
}

// terminate sends SIGTERM, as a platform does, and waits until that has arrived.
func (p *process) terminate(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	select {
	case <-p.stops:
	case <-p.ended:
		t.Fatalf("worker %s ended at once: %v", p.name, p.cmd.ProcessState)
	case <-time.After(patience):
		t.Fatalf("worker %s has not heard SIGTERM within %v", p.name, patience)
	}
}

// stop lets the worker drain. When it has returned, all has been written that
// the worker had to write.
func (p *process) stop(t testing.TB) {
	t.Helper()
	_ = p.stdin.Close()
	p.left(t)
}

// left waits for the end of a process that was told to stop.
func (p *process) left(t testing.TB) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatalf("worker %s has not stopped within %v", p.name, patience)
	}
	if !p.cmd.ProcessState.Success() {
		t.Fatalf("worker %s: %v", p.name, p.cmd.ProcessState)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
