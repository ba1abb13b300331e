package meter_test

import (
	"strings"
	"testing"

	"github.com/pawlworks/pawl/examples/import/meter"
)

func TestLines(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	m := &meter.Meter{Out: &out, Label: "x", Text: meter.Megabytes}
	for done := int64(0); done <= 2_000_000; done += 1000 {
		m.Show(done, 2_000_000)
	}
	m.Show(1, 2_000_000) // it does not go back
	m.Break()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 11 || lines[3] != "x:  30 % (0.60 of 2.00 MB)" || lines[10] != "x: 100 % (2.00 of 2.00 MB)" {
		t.Errorf("%q", lines)
	}
}

func TestBar(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	m := &meter.Meter{Out: &out, Bar: true, Label: "x", Text: meter.Count}
	m.Show(1, 4)
	m.Show(1, 4)
	m.Break()
	m.Break()
	m.Show(0, 0) // nothing to do is done
	m.Break()
	want := "\rx [##########..............................]  25.0 % (1 of 4)\n\rx [########################################] 100.0 % (0 of 0)\n"
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
}
