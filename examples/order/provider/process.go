package provider

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Process is a provider in a process of its own.
type Process struct {
	URL string // where it listens

	cmd   *exec.Cmd
	stdin io.Closer
}

// Start starts cmd, which is to run Main with -tied, and waits until it listens.
func Start(cmd *exec.Cmd) (*Process, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, stdin: stdin}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if p.URL = strings.TrimSpace(line); err != nil || !strings.HasPrefix(p.URL, "http://") {
		p.Kill()
		return nil, errors.Join(fmt.Errorf("provider: its process does not say where it listens but %q", p.URL), err)
	}
	return p, nil
}

// Stop ends the provider and tells how it ended.
func (p *Process) Stop() error {
	return errors.Join(p.stdin.Close(), p.cmd.Wait())
}

// Kill ends the provider with SIGKILL, in the middle of whatever it does.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it was killed: there is no more to know
}
