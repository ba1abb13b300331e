package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Row is a figure over all rounds.
type Row struct {
	Workload, System, Variant, Situation string
	Metric                               Metric
	Rounds                               []float64
}

// Median is the middle of the rounds.
func (r Row) Median() float64 {
	s := slices.Sorted(slices.Values(r.Rounds))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// Table gathers rows. The zero value is empty and ready.
type Table struct{ Rows []Row }

// Add adds what one measurement found.
func (t *Table) Add(workload, system, variant, situation string, values []Value) {
	for _, v := range values {
		i := slices.IndexFunc(t.Rows, func(r Row) bool {
			return r.Workload == workload && r.System == system && r.Variant == variant && r.Situation == situation && r.Metric.Name == v.Metric
		})
		if i < 0 {
			i = len(t.Rows)
			t.Rows = append(t.Rows, Row{workload, system, variant, situation, Find(v.Metric), nil})
		}
		t.Rows[i].Rounds = append(t.Rows[i].Rounds, v.Value)
	}
}

// of are the rows that compare with r, of the systems that match.
func (t *Table) of(r Row, match func(system string) bool) (rows []Row) {
	for _, o := range t.Rows {
		if o.Workload == r.Workload && o.Situation == r.Situation && o.Metric.Name == r.Metric.Name && match(o.System) {
			rows = append(rows, o)
		}
	}
	return rows
}

// ratios are the median by the floor's and by the best peer's; NaN: there is none.
func (t *Table) ratios(r Row) (floor, peer float64, best string) {
	floor, peer = math.NaN(), math.NaN()
	if r.Metric.Plain {
		return floor, peer, ""
	}
	if fs := t.of(r, func(s string) bool { return s == "floor" }); len(fs) == 1 && fs[0].Median() != 0 && r.System != "floor" {
		floor = r.Median() / fs[0].Median()
	}
	if r.System != "pawl" && r.System != "floor" {
		return floor, peer, ""
	}
	for _, p := range t.of(r, func(s string) bool { return s != "floor" && s != "pawl" }) {
		if m := p.Median(); m != 0 {
			q := r.Median() / m
			if math.IsNaN(peer) || (r.Metric.Higher && q < peer) || (!r.Metric.Higher && q > peer) {
				peer, best = q, strings.TrimSpace(p.System+" "+p.Variant)
			}
		}
	}
	return floor, peer, best
}

// Write writes the table of one workload, as Markdown.
func (t *Table) Write(w io.Writer, workload string) {
	fmt.Fprintln(w, "| situation | metric | system | median | min – max | unit | ÷ floor | ÷ best peer |")
	fmt.Fprintln(w, "| --- | --- | --- | ---: | ---: | --- | ---: | --- |")
	var situations []string
	for _, r := range t.Rows {
		if r.Workload == workload && !slices.Contains(situations, r.Situation) {
			situations = append(situations, r.Situation)
		}
	}
	for _, s := range situations {
		for _, m := range Metrics {
			for _, r := range t.Rows {
				if r.Workload == workload && r.Situation == s && r.Metric.Name == m.Name {
					t.line(w, r)
				}
			}
		}
	}
}

func (t *Table) line(w io.Writer, r Row) {
	floor, peer, best := t.ratios(r)
	system := r.System
	if r.Variant != "" {
		system += ", " + r.Variant
	}
	peerText := ""
	if !math.IsNaN(peer) {
		peerText = Number(peer) + " (" + best + ")"
	}
	fmt.Fprintf(w, "| %s | %s | %s | %s | %s – %s | %s | %s | %s |\n", r.Situation, r.Metric.Name, system, Number(r.Median()),
		Number(slices.Min(r.Rounds)), Number(slices.Max(r.Rounds)), r.Metric.Unit, Number(floor), peerText)
}

// Number writes a figure with three digits at least, and thousands apart.
func Number(x float64) string {
	switch a := math.Abs(x); {
	case math.IsNaN(x):
		return ""
	case a == math.Trunc(a) && a < 1000:
		return fmt.Sprintf("%.0f", x)
	case a < 0.1:
		return fmt.Sprintf("%.4f", x)
	case a < 10:
		return fmt.Sprintf("%.2f", x)
	case a < 1000:
		return fmt.Sprintf("%.1f", x)
	}
	s := fmt.Sprintf("%.0f", x)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
