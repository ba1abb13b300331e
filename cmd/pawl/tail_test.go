package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/view"
)

// tail runs pawl tail until the test has read enough: its lines come through
// the channel; stop is Ctrl-C, and returns its exit code and what it complained of.
func (p *planted) tail(args ...string) (lines <-chan string, stop func() (int, string)) {
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	out := make(chan string, 100)
	ended := make(chan int, 1)
	var errOut bytes.Buffer
	go func() {
		ended <- run(ctx, append([]string{"tail", "-database", p.url}, args...), w, &errOut)
		_ = w.Close()
	}()
	go func() {
		defer close(out)
		for s := bufio.NewScanner(r); s.Scan(); {
			select {
			case out <- s.Text():
			case <-ctx.Done():
			}
		}
	}()
	return out, func() (int, string) { cancel(); return <-ended, errOut.String() }
}

// TestTail follows live work: each transition once, and all of them.
func TestTail(t *testing.T) {
	t.Parallel()
	p := plant(t)
	lines, stop := p.tail("-json", "-workflow", "order", "-since", "1h")
	p.work(p.e)
	p.work(p.e)
	const n = 300
	ins := make([]string, n)
	for i := range ins {
		if ins[i] = fmt.Sprint("fine ", i); i%10 == 0 {
			ins[i] = "declined"
		}
	}
	for range 3 {
		if _, err := engine.StartMany(context.Background(), p.e, orders, ins); err != nil {
			t.Fatal(err)
		}
	}
	p.start(mails, "fine")
	seen := map[string]bool{}
	for len(seen) < 3*n {
		var e view.Event
		line := <-lines
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Workflow != "order" || e.Step != "charge" || e.Worker != "worker-1" {
			t.Fatalf("%v: %s", err, line)
		}
		key := fmt.Sprint(e.Run, e.Job, e.Token)
		if seen[key] {
			t.Fatalf("told twice: %s", line)
		}
		seen[key] = true
	}
	p.until(p.runs["fine"], engine.Succeeded)
	if code, errOut := stop(); code != exitOK || errOut != "" {
		t.Errorf("exit code %d, %s", code, errOut)
	}
}

func TestTailText(t *testing.T) {
	t.Parallel()
	p := plant(t)
	p.trouble()
	for _, c := range []struct{ args, want string }{
		{"-since 1h -run order-2", " dead        order/charge #1 EVIL_[2J"},
		{"-since 1h -run " + p.runs["asked"], " asking      later/transfer #1"},
		{"-since 2000-01-01", p.runs["lost"] + " uncertain   mail/send #1 UNKNOWN"},
	} {
		lines, stop := p.tail(strings.Fields(c.args)...)
		if first := <-lines; !strings.HasPrefix(first, "following") {
			t.Errorf("%q", first)
		}
		for line := range lines {
			if width(line) > screen || safe(line) != line {
				t.Errorf("%q", line)
			}
			if strings.Contains(line, c.want) {
				break
			}
		}
		if code, errOut := stop(); code != exitOK || errOut != "" {
			t.Errorf("%s: exit code %d, %s", c.args, code, errOut)
		}
	}
	p.says(p.reads(exitFailed, "tail", "-run", "nothing"), `0 runs have the id or the key "nothing"`)
	p.says(p.reads(exitUsage, "tail", "-since", "yesterday"), "usage: pawl tail")
	p.says(p.reads(exitUsage, "tail", "order"), `"order" is not understood`)
}
