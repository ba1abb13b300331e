// Package child runs parts of the bench in processes of their own: the program
// executes itself again, with an order on its standard input.
//
// A child ends when its parent does: its standard input is at an end then.
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// mark tells a process that it is a child.
const mark = "PAWL_BENCH_CHILD"

// Main runs do and exits, if this process is a child; else it returns at once.
// Call it first thing in main and TestMain. do gets the order and what the
// parent says later; what it returns goes back.
func Main[Order, Report any](do func(context.Context, Order, *Talk) (Report, error)) {
	if os.Getenv(mark) == "" {
		return
	}
	os.Unsetenv(mark) // grandchildren are marked anew
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		os.Exit(2)
	}
	var order Order
	if err := json.Unmarshal(line, &order); err != nil {
		fmt.Fprintln(os.Stderr, "the order is not understood:", err)
		os.Exit(2)
	}
	ctx, cancel := context.WithCancel(context.Background())
	talk := &Talk{heard: make(chan string, 16)}
	go func() {
		for {
			line, err := in.ReadString('\n')
			if err != nil { // the parent has gone, or does not want us any more
				cancel()
				os.Exit(3)
			}
			talk.heard <- strings.TrimSpace(line)
		}
	}()
	report, err := do(ctx, order, talk)
	a := answer[Report]{Report: report}
	if err != nil {
		a.Err = err.Error()
	}
	b, err := json.Marshal(a)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	talk.Say("report " + string(b))
	os.Exit(0)
}

type answer[Report any] struct {
	Report Report
	Err    string
}

// Talk is a child's line to its parent.
type Talk struct {
	mu    sync.Mutex
	heard chan string
}

// Say sends a line.
func (t *Talk) Say(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintln(os.Stdout, line)
}

// Hear waits for a line.
func (t *Talk) Hear() string { return <-t.heard }

// Child is a child that was started.
type Child[Report any] struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	log   tail
	done  chan struct{}
	got   *answer[Report]
}

// Start starts a child with an order.
func Start[Report any](ctx context.Context, order any) (*Child[Report], error) {
	b, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &Child[Report]{cmd: exec.CommandContext(ctx, self), lines: make(chan string, 1000), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), mark+"=1")
	c.cmd.Stderr = &c.log
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go c.read(out)
	_, err = c.in.Write(append(b, '\n'))
	return c, err
}

func (c *Child[Report]) read(out io.Reader) {
	defer close(c.done)
	defer close(c.lines)
	in := bufio.NewReader(out)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		if text, ok := strings.CutPrefix(line, "report "); ok {
			var a answer[Report]
			if json.Unmarshal([]byte(text), &a) == nil {
				c.got = &a
			}
			continue
		}
		select {
		case c.lines <- strings.TrimSpace(line):
		default: // nobody reads what it says
		}
	}
}

// Say sends a line.
func (c *Child[Report]) Say(line string) error {
	_, err := fmt.Fprintln(c.in, line)
	return err
}

// Hear waits for a line; an error means that the child has ended.
func (c *Child[Report]) Hear(ctx context.Context) (string, error) {
	select {
	case line, ok := <-c.lines:
		if !ok {
			_, err := c.Wait()
			return "", errors.Join(errors.New("the child process has ended too early"), err)
		}
		return line, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// Kill ends the child with SIGKILL. Wait must follow.
func (c *Child[Report]) Kill() error { return c.cmd.Process.Signal(syscall.SIGKILL) }

// Wait waits for the child's report and its end.
func (c *Child[Report]) Wait() (Report, error) {
	<-c.done
	err := c.cmd.Wait()
	_ = c.in.Close()
	if c.got == nil {
		var none Report
		return none, fmt.Errorf("the child process left no report (%v); its last words: %s", err, c.log.String())
	}
	if c.got.Err != "" {
		words := c.log.String()
		if words != "" {
			words = "; its last words: " + words
		}
		return c.got.Report, errors.New(c.got.Err + words)
	}
	return c.got.Report, nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	if len(t.b) > 2000 {
		t.b = append([]byte(nil), t.b[len(t.b)-2000:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.b))
}
