package runner

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pawlworks/pawl/bench/internal/report"
	"github.com/pawlworks/pawl/bench/internal/server"
)

// Write writes the result as Markdown: circumstances, tables, notes.
func (r *Result) Write(w io.Writer) {
	m, o := r.Machine, r.Options
	fmt.Fprintf(w, "%s, PostgreSQL %s, %d CPUs (%s), %s; client and server share them.\n", m.Go, m.PostgreSQL, m.CPUs, m.Model, m.Kernel)
	fmt.Fprintf(w, "One commit of one row: p50 %s ms, p99 %s ms", report.Number(m.CommitMs), report.Number(m.CommitP99Ms))
	if m.SyncMs > 0 {
		fmt.Fprintf(w, "; one data sync of 8 KiB: p50 %s ms", report.Number(m.SyncMs))
	}
	var settings []string
	for _, name := range slices.Sorted(maps.Keys(server.Settings)) {
		settings = append(settings, name+" = "+server.Settings[name])
	}
	fmt.Fprintf(w, ".\nfsync, synchronous_commit and full_page_writes on; %s.\n", strings.Join(settings, ", "))
	fmt.Fprintf(w, "Rounds: %d; scale %g (peers %g further in W1, W3 and W7); slots %d where throughput is measured, else 100; "+
		"connections of a process: %d. Took %v.\n\n", o.Rounds, o.Scale, o.PeerScale, o.Slots, o.Conns, r.Took.Round(time.Second))
	fmt.Fprintln(w, "| system | version | settings |\n| --- | --- | --- |")
	for _, c := range r.Contestants {
		name := c.Name
		if c.Variant != "" {
			name += ", " + c.Variant
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", name, c.Version, c.Settings)
	}
	for _, x := range r.Workloads {
		fmt.Fprintf(w, "\n### %s: %s\n\n", x.Name, x.Title)
		r.Table.Write(w, x.Name)
	}
	if len(r.Notes) > 0 {
		fmt.Fprint(w, "\n### Notes\n\n")
		for _, n := range r.Notes {
			fmt.Fprintln(w, "- "+strings.ReplaceAll(n, "\n", " "))
		}
	}
}
