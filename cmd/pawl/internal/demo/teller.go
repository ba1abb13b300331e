package demo

import (
	"fmt"
	"io"

	"github.com/pawlworks/pawl/examples/import/meter"
)

// teller tells a person what happens.
type teller struct {
	out   io.Writer
	bar   bool
	meter *meter.Meter // of the part under way
}

// say writes a line, below a bar that is being drawn.
func (t *teller) say(format string, args ...any) {
	if t.meter != nil {
		t.meter.Break()
	}
	fmt.Fprintf(t.out, format+"\n", args...)
}

// measure begins a new meter.
func (t *teller) measure(label string, text func(done, total int64) string) {
	t.meter = &meter.Meter{Out: t.out, Bar: t.bar, Label: label, Text: text}
}
