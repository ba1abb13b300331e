package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pawlworks/pawl/internal/view"
)

func (p statusPrinter) workers(all []view.Worker) {
	p.blank()
	if len(all) == 0 {
		p.line("WORKERS: none")
		return
	}
	builds := map[string]int{}
	alive := 0
	for _, w := range all {
		if w.State == "alive" {
			alive++
			builds[w.Build+", pawl "+w.Pawl]++
		}
	}
	p.line("WORKERS: %d alive", alive)
	names := []string{}
	for b := range builds {
		names = append(names, b)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(builds[b]-builds[a], strings.Compare(a, b)) })
	for _, b := range names {
		p.line("%7d  built from %s", builds[b], b)
	}
	// Those that are not well come first.
	slices.SortStableFunc(all, func(a, b view.Worker) int { return strings.Compare(b.State, a.State) })
	p.some(len(all), func(i int) {
		w := all[i]
		where := fmt.Sprintf("%s on %s, process %d", cut(safe(w.Name), 30), cut(safe(w.Host), 30), w.PID)
		switch w.State {
		case "alive":
			p.line("  alive  %s, %d running, since %s", where, w.Running, age(p.now.Sub(w.StartedAt)))
			p.line("         queues %s", list(w.Queues))
		case "silent":
			p.line("  SILENT %s, holds %d", where, w.Running)
			p.line("         no word since %s: stopped, cut off or killed", p.since(w.LapsedAt))
			p.line("         what it holds others take back; start it again if it is to be there")
		default:
			p.line("  gone   %s", where)
			p.line("         its session lapsed %s; its jobs were taken back", p.when(w.LapsedAt))
			p.line("         start it again if it is to be there")
		}
	})
}

func (p statusPrinter) queues(all []view.Queue) {
	p.blank()
	if len(all) == 0 {
		p.line("QUEUES: nothing waits, nothing runs")
		return
	}
	p.line("QUEUES %-25s %10s %10s %8s  OLDEST DUE", "", "DUE", "LATER", "RUNNING")
	slices.SortStableFunc(all, func(a, b view.Queue) int {
		if a.Oldest.IsZero() != b.Oldest.IsZero() {
			return cmp.Compare(b.Oldest.Unix(), a.Oldest.Unix())
		}
		return a.Oldest.Compare(b.Oldest)
	})
	p.some(len(all), func(i int) {
		q := all[i]
		oldest, more := "-", ""
		if !q.Oldest.IsZero() {
			oldest = p.when(q.Oldest)
		}
		if q.More {
			more = "+"
		}
		p.line("  %s %10s %10s %8d  %s", pad(q.Name, 30), fmt.Sprint(q.Due, more), fmt.Sprint(q.Later, more), q.Running, oldest)
	})
}

func (p statusPrinter) database(s view.Status) {
	d := s.Database
	p.blank()
	p.line("DATABASE")
	snapshot := "none held"
	if x := d.Snapshot; x != nil {
		snapshot = fmt.Sprintf("%s %s", x.Kind, cut(safe(x.Who), 40))
		if x.PID != 0 {
			snapshot += fmt.Sprintf(" (process %d, %s)", x.PID, x.What)
		}
		if !x.Since.IsZero() {
			snapshot += ", since " + p.since(x.Since)
		}
	} else if d.Hidden {
		snapshot = "not to be seen by this role: GRANT pg_monitor"
	}
	p.text(2, "oldest snapshot: %s", snapshot)
	if d.Snapshot != nil {
		p.line("    rows that die meanwhile can't be cleared away; trouble from half an hour on")
	}
	vacuumed := "not vacuumed yet"
	if !d.VacuumedAt.IsZero() {
		vacuumed = "vacuumed " + p.when(d.VacuumedAt)
	}
	p.line("  pawl.job: %d rows, %d dead, %d kB; %s", d.LiveRows, d.DeadRows, d.JobBytes/1024, vacuumed)
	keep := "ended runs are kept for ever"
	if d.Retention != "" {
		keep = "ended runs are kept for " + d.Retention
	}
	p.line("  history: partitions for %d days ahead; %s", d.PartitionsAhead, keep)
}

// list is names, the first of them if they are many.
func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	short := []string{}
	for _, n := range names[:min(len(names), 5)] {
		short = append(short, cut(safe(n), 24))
	}
	if len(names) > 5 {
		short = append(short, fmt.Sprintf("and %d more", len(names)-5))
	}
	return strings.Join(short, ", ")
}
