package pglocal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// postmaster is one run of the server: from a start to its end.
type postmaster struct {
	cmd  *exec.Cmd
	data string
	log  *logEnd

	// gone is closed when the postmaster was waited for and its log pipe is
	// at an end: each of its children holds that pipe, so none is left.
	gone chan struct{}
}

// errPort says that the port went to somebody else meanwhile.
var errPort = errors.New("the port is taken")

// startPostmaster returns when the server accepts connections.
func startPostmaster(ctx context.Context, h *home, p programs, log io.Writer) (*postmaster, error) {
	dog, err := startWatchdog(h)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		dog.dismiss()
		return nil, err
	}
	cmd := exec.Command(p.path("postgres"), "-D", h.data) // serves() relies on the last argument
	cmd.Dir = h.data
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = w, w
	detach(cmd, h.owner)
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		dog.dismiss()
		return nil, fmt.Errorf("pglocal: %w", err)
	}
	m := &postmaster{cmd: cmd, data: h.data, log: &logEnd{more: log}, gone: make(chan struct{})}
	watchErr := dog.watch(cmd.Process.Pid)
	go func() {
		_, _ = io.Copy(m.log, r)
		_ = r.Close()
		_ = cmd.Wait()
		dog.dismiss()
		close(m.gone)
	}()
	if err := errors.Join(watchErr, m.ready(ctx)); err != nil {
		m.kill()
		return nil, err
	}
	return m, nil
}

// ready waits for the word in the pid file that pg_ctl waits for. PostgreSQL
// tells nobody when it writes it, so the file is looked at again and again;
// the log can't be used, since settings may silence it.
func (m *postmaster) ready(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		text, _ := os.ReadFile(filepath.Join(m.data, "postmaster.pid"))
		lines := strings.Split(string(text), "\n")
		if len(lines) > 7 && lines[0] == fmt.Sprint(m.cmd.Process.Pid) {
			if word := strings.TrimSpace(lines[7]); word == "ready" || word == "standby" {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("pglocal: the server did not get ready: %w\n%s", ctx.Err(), m.log)
		case <-m.gone:
			if strings.Contains(m.log.String(), "could not create any TCP/IP sockets") {
				return fmt.Errorf("pglocal: %w\n%s", errPort, m.log)
			}
			return fmt.Errorf("pglocal: the server ended at once (%v)\n%s", m.cmd.ProcessState, m.log)
		case <-tick.C:
		}
	}
}

// stop shuts down fast: sessions are ended, a checkpoint is written. A server
// that does not obey is told more plainly.
func (m *postmaster) stop() {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT} {
		if m.ended() {
			return
		}
		_ = m.cmd.Process.Signal(signal)
		_ = m.cmd.Process.Signal(sigCont) // in case a test has stopped it
		select {
		case <-m.gone:
			return
		case <-time.After(20 * time.Second):
		}
	}
	m.kill()
}

// kill ends it without warning, children too, and returns when none is left.
func (m *postmaster) kill() {
	if !m.ended() {
		killTree(m.cmd.Process.Pid)
	}
	<-m.gone
}

func (m *postmaster) ended() bool {
	select {
	case <-m.gone:
		return true
	default:
		return false
	}
}

// logEnd passes the log on and remembers its end for error messages.
type logEnd struct {
	mu   sync.Mutex
	text []byte
	more io.Writer
}

func (l *logEnd) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if over := len(l.text) - 8192; over > 0 {
		l.text = append(l.text[:0], l.text[over:]...)
	}
	if l.more != nil {
		_, _ = l.more.Write(p) // a full disk at the reader's is not our error
	}
	return len(p), nil
}

func (l *logEnd) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
