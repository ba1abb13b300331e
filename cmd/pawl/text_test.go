package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestSafe(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain ü 日本 😀": "plain ü 日本 😀", "a\x1b[31mb": `a\x1b[31mb`, "a\nb\tc\r": `a\nb\tc\x0d`, "\u009b1m": `\x9b1m`, "a\u202eb\u2066": `a\u202eb\u2066`,
		"\xff\x00": `\xff\x00`, "\u2028\u200b\ufeff": `\u2028\u200b\ufeff`, "\x7f": `\x7f`,
	} {
		if got := safe(in); got != want {
			t.Errorf("%q: %s, not %s", in, got, want)
		}
	}
}

func TestScreen(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := &printer{w: &b}
	for _, s := range []string{strings.Repeat("word ", 60), strings.Repeat("x", 300), strings.Repeat("日本", 90), strings.Repeat("e\u0301", 200), "", strings.Repeat("\x1b[1m", 80)} {
		p.line("%s", s)
		p.text(9, "%s", s)
		if w := width(pad(s, 17)); w != 17 {
			t.Errorf("%q is %d columns", pad(s, 17), w)
		}
	}
	for line := range strings.SplitSeq(b.String(), "\n") {
		if width(line) > screen || strings.Contains(line, "\x1b") {
			t.Errorf("%d columns: %q", width(line), line)
		}
	}
	if joined := strings.Join(strings.Fields(b.String()), ""); strings.Count(joined, "word") < 60+19 || strings.Count(joined, "x") < 300+99 {
		t.Errorf("something is lost:\n%s", b.String())
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{0: "0s", 59 * time.Second: "59s", time.Minute: "1m", 61 * time.Second: "1m1s", 3*time.Hour + 12*time.Minute + 5*time.Second: "3h12m",
		49 * time.Hour: "2d1h", 400 * 24 * time.Hour: "400d"} {
		if got := age(d); got != want {
			t.Errorf("%v: %s, not %s", d, got, want)
		}
	}
	p := &printer{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	if got := p.when(p.now.Add(-time.Hour)); got != "1h ago (2026-01-02 02:04:05Z)" {
		t.Error(got)
	}
	if got := p.when(p.now.Add(1500 * time.Millisecond)); got != "in 2s (2026-01-02 03:04:06Z)" {
		t.Error(got)
	}
}

func TestMoment(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 9, 12, 0, 0, 0, time.UTC)
	for s, want := range map[string]string{"": "0001-01-01T00:00:00Z", "7d": "2026-01-02T12:00:00Z", "90m": "2026-01-09T10:30:00Z", "2026-01-02": "2026-01-02T00:00:00Z",
		"2026-01-02 03:04:05Z": "2026-01-02T03:04:05Z", "2026-01-02T03:04:05+02:00": "2026-01-02T01:04:05Z", "2026-01-02T03:04:05": "2026-01-02T03:04:05Z"} {
		got, err := moment("-since", s, now)
		if err != nil || got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"-5m", "soon", "2026-13-01", "d"} {
		if _, err := moment("-since", s, now); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}

func TestPrintJSON(t *testing.T) {
	t.Parallel()
	in := map[string]string{"k\u009b": "a\x1b\u202e\u007f\n<&>\U000e0001"}
	var b bytes.Buffer
	if err := printJSON(&b, in); err != nil {
		t.Fatal(err)
	}
	for _, r := range strings.TrimSuffix(b.String(), "\n") {
		if harmful(r) {
			t.Errorf("%U in %s", r, b.String())
		}
	}
	var out map[string]string
	if err := json.Unmarshal(b.Bytes(), &out); err != nil || out["k\u009b"] != in["k\u009b"] {
		t.Errorf("%v: %q", err, out)
	}
}
