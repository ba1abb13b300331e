package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/view"
)

func TestList(t *testing.T) {
	t.Parallel()
	p := plant(t)
	p.trouble()
	for _, c := range []struct {
		args string
		want string // the runs' inputs, in any order
	}{
		{"", "declined,evil,provider down,fine,lost,asked"},
		{"-workflow order", "declined,evil,provider down,fine"},
		{"-state failed", "declined,evil"},
		{"-state failed,succeeded -workflow order", "declined,evil,fine"},
		{"-state failed -state scheduled", "declined,evil,provider down"},
		{"-state uncertain", "lost,asked"},
		{"-state stranded", ""},
		{"-step charge", "declined,evil,provider down"},
		{"-step nowhere", ""},
		{"-code DECLINED", "declined"},
		{"-key order-4", "fine"},
		{"-key order-4 -workflow mail", ""},
		{"-tag vip", "declined,fine"},
		{"-tag vip -tag eu", "declined"},
		{"-since 1h", "declined,evil,provider down,fine,lost,asked"},
		{"-until 1h", ""},
		{"-since 2200-01-01", ""},
	} {
		out := p.reads(exitOK, "list", strings.Fields(c.args)...)
		var got []string
		for what, id := range p.runs {
			if strings.Contains(out, id) {
				got = append(got, what)
			}
		}
		if want := strings.FieldsFunc(c.want, func(r rune) bool { return r == ',' }); len(got) != len(want) || len(want) > 0 && !sameNames(got, want) {
			t.Errorf("list %s: %v, not %v\n%s", c.args, got, want, out)
		}
		if c.want == "" && !strings.Contains(out, "no run fits") {
			t.Errorf("list %s: %s", c.args, out)
		}
	}
	p.says(p.reads(exitOK, "list", "-code", "EVIL_[2J"), p.runs["evil"]+" failed order/charge EVIL", "key order-2 owner payments")
	// Pages, as JSON: one object a line.
	seen, before := map[string]bool{}, uuid.Nil
	for range 4 {
		args := []string{"-json", "-limit", "2"}
		if before != uuid.Nil {
			args = append(args, "-before", before.String())
		}
		for line := range strings.Lines(p.reads(exitOK, "list", args...)) {
			var i view.Item
			if err := json.Unmarshal([]byte(line), &i); err != nil || seen[i.ID.String()] || i.CreatedAt.IsZero() || i.State == "" {
				t.Fatalf("%v: %s", err, line)
			}
			seen[i.ID.String()], before = true, i.ID
		}
	}
	if len(seen) != 6 {
		t.Errorf("%d runs on the pages", len(seen))
	}
	p.says(p.reads(exitOK, "list", "-limit", "2"), "older ones: the same with -before")
	for _, args := range []string{"-state bad", "-limit 0", "-limit x", "-before x", "-since yesterday", "-key \xff", "more"} {
		if out := p.reads(exitUsage, "list", strings.Fields(args)...); !strings.Contains(out, "usage: pawl list") {
			t.Errorf("list %s: %s", args, out)
		}
	}
}

func sameNames(a, b []string) bool {
	in := map[string]bool{}
	for _, x := range a {
		in[x] = true
	}
	for _, x := range b {
		if !in[x] {
			return false
		}
	}
	return true
}
