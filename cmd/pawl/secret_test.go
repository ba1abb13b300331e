package main

import (
	"strings"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
)

// What runs are about is told by show -payloads alone.
func TestPayloadsAreNotTold(t *testing.T) {
	t.Parallel()
	const secret = "s3cret-payload"
	p := plant(t)
	p.work(p.e)
	done := p.start(orders, secret+" done", engine.Key("done"))
	p.until(done, engine.Succeeded)
	p.start(orders, secret+" later", engine.Key("later"), engine.After(time.Hour))
	for _, command := range [][]string{{"status"}, {"status", "-all"}, {"list"}, {"show", "done"}, {"show", "later"}, {"settings"}} {
		for _, format := range [][]string{nil, {"-json"}} {
			out := p.reads(exitOK, command[0], append(format, command[1:]...)...)
			if out == "" || strings.Contains(out, secret) {
				t.Errorf("%v %v:\n%s", command, format, out)
			}
		}
	}
	for _, args := range [][]string{{"-since", "1h"}, {"-since", "1h", "-json"}} {
		lines, stop := p.tail(args...)
		for line := range lines {
			if strings.Contains(line, secret) {
				t.Errorf("tail %v: %s", args, line)
			}
			if strings.Contains(line, "completed") {
				break
			}
		}
		stop()
	}
	p.says(p.reads(exitOK, "show", "-payloads", "done"), secret+" done", "done: "+secret+" done")
	p.says(p.reads(exitOK, "show", "-payloads", "later"), secret+" later")
}
