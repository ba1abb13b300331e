// Package meter shows progress to a person or to a log.
package meter

import (
	"fmt"
	"io"
	"strings"
)

// Meter is a bar that is drawn again in its place, for a terminal, or a line
// each tenth, for anything else. It never goes back: what was shown was durable.
type Meter struct {
	Out   io.Writer
	Bar   bool
	Label string
	Text  func(done, total int64) string // what stands beside the share

	shown int // tenths in lines, thousandths in the bar; one more, so that zero is none
	drawn bool
}

const width = 40

// Show shows how far it is. Nothing is written unless that is news.
func (m *Meter) Show(done, total int64) {
	share := 1.0
	if total > 0 {
		share = min(max(float64(done)/float64(total), 0), 1)
	}
	parts := 10
	if m.Bar {
		parts = 1000
	}
	step := int(share*float64(parts)) + 1
	if step <= m.shown {
		return
	}
	m.shown = step
	if !m.Bar {
		fmt.Fprintf(m.Out, "%s: %3.0f %% (%s)\n", m.Label, share*100, m.Text(done, total))
		return
	}
	m.drawn = true
	full := int(share * width)
	fmt.Fprintf(m.Out, "\r%s [%s%s] %5.1f %% (%s)", m.Label, strings.Repeat("#", full), strings.Repeat(".", width-full), share*100, m.Text(done, total))
}

// Break leaves the bar's line, so that what is said next has its own.
func (m *Meter) Break() {
	if m.drawn {
		fmt.Fprintln(m.Out)
		m.drawn = false
	}
}

// Megabytes is the Text of a file's bytes.
func Megabytes(done, total int64) string {
	return fmt.Sprintf("%.2f of %.2f MB", float64(done)/1e6, float64(total)/1e6)
}

// Count is the Text of so many things.
func Count(done, total int64) string { return fmt.Sprintf("%d of %d", done, total) }
