package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// screen is how wide what people read may be, in columns.
const screen = 100

// printer prints for people. Whatever it prints can't do anything to a
// terminal: control characters of users' texts are shown, not sent.
type printer struct {
	w   io.Writer
	now time.Time // by the database's clock
	err error
}

// line prints one line, cut to the screen.
func (p *printer) line(format string, args ...any) {
	p.write(cut(safe(fmt.Sprintf(format, args...)), screen))
}

// text prints a text, broken at words, further lines indented a little more.
func (p *printer) text(indent int, format string, args ...any) {
	rest, first := safe(fmt.Sprintf(format, args...)), true
	for rest != "" || first {
		room := screen - indent
		head := rest
		if width(rest) > room {
			head = prefix(rest, room)
			if i := strings.LastIndexByte(head, ' '); i > room/2 {
				head = head[:i]
			}
		}
		p.write(strings.Repeat(" ", indent) + strings.TrimRight(head, " "))
		rest = strings.TrimLeft(rest[len(head):], " ")
		if first {
			first, indent = false, indent+2
		}
	}
}

func (p *printer) blank() { p.write("") }

func (p *printer) write(line string) {
	if _, err := fmt.Fprintln(p.w, line); p.err == nil {
		p.err = err
	}
}

// safe shows what a terminal would obey or what would make a line look like
// another: control characters, and those that turn the direction of writing.
func safe(s string) string {
	if !strings.ContainsFunc(s, harmful) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case harmful(r) && r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case harmful(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}

func harmful(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs)
}

// width is how many columns a text takes, as terminals count.
func width(s string) (n int) {
	for _, r := range s {
		n += columns(r)
	}
	return n
}

func columns(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f,
		r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}

// prefix is as much of s as fits in so many columns, at least a character.
func prefix(s string, room int) string {
	n := 0
	for i, r := range s {
		if n += columns(r); n > room && i > 0 {
			return s[:i]
		}
	}
	return s
}

// cut is s in at most so many columns.
func cut(s string, most int) string {
	if width(s) <= most {
		return s
	}
	return prefix(s, most-1) + "…"
}

// pad is s in exactly so many columns. What is to be cut is made safe first.
func pad(s string, n int) string {
	s = cut(safe(s), n)
	return s + strings.Repeat(" ", max(n-width(s), 0))
}

// age is a duration in its two largest units.
func age(d time.Duration) string {
	if d = d.Abs(); d < time.Minute {
		return fmt.Sprintf("%ds", int(d.Seconds()))
	}
	units := []struct {
		name string
		d    time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	for i, u := range units {
		if d < u.d {
			continue
		}
		s := fmt.Sprintf("%d%s", d/u.d, u.name)
		if i+1 < len(units) {
			if n := d % u.d / units[i+1].d; n > 0 {
				s += fmt.Sprintf("%d%s", n, units[i+1].name)
			}
		}
		return s
	}
	return "0s"
}

// since is how long something has lasted, and when it began.
func (p *printer) since(t time.Time) string { return strings.Replace(p.when(t), " ago", "", 1) }

// when is a time as its age and absolutely.
func (p *printer) when(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	at := t.UTC().Format("2006-01-02 15:04:05Z")
	if d := p.now.Sub(t); d >= 0 {
		return age(d) + " ago (" + at + ")"
	}
	return "in " + age(t.Sub(p.now)+time.Second-1) + " (" + at + ")"
}
