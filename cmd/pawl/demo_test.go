//go:build unix

package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
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
