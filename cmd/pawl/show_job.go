package main

import (
	"fmt"
	"strings"

	"github.com/pawlworks/pawl/internal/view"
)

// job is where a run stands.
func (p *runPrinter) job(j view.Job) {
	p.blank()
	name := j.Step
	if j.Path != "" {
		name += " [" + j.Path + "]"
	}
	p.line("AT %s: %s, attempt %d, queue %s", name, j.State, j.Attempt, j.Queue)
	p.text(2, "next     %s", p.next(j.Next, j.NextAt))
	if j.Worker != "" {
		alive := ""
		if !j.WorkerAlive {
			alive = ", SILENT"
		}
		p.line("  worker   %s on %s, process %d%s", j.Worker, j.WorkerHost, j.WorkerPID, alive)
		p.line("  lease    since %s", p.since(j.GrantedAt))
		p.line("           until %s", p.when(j.ExpiresAt))
		p.line("           no renewal beyond %s", p.when(j.Deadline))
	}
	var spent []string
	for _, s := range []struct {
		n    int
		what string
	}{{j.Transients, "transient failures"}, {j.Unknowns, "unclassified failures"}, {j.Lapses, "lapses in a row"}, {j.Questions, "questions"}} {
		if s.n > 0 {
			spent = append(spent, fmt.Sprintf("%s: %d", s.what, s.n))
		}
	}
	if len(spent) > 0 {
		p.text(2, "so far   %s", strings.Join(spent, ", "))
	}
	if !j.FailedAt.IsZero() {
		p.line("  failing  since %s", p.since(j.FailedAt))
	}
	if !j.Uncertain.IsZero() {
		p.line("  unknown  since %s", p.since(j.Uncertain))
	}
	if j.EffectKey != "" {
		p.line("  effect   key %s", j.EffectKey)
		p.line("           to look for at the other side; first attempt %s", p.when(j.EffectAt))
	}
	if j.Total > 0 || j.Done > 0 {
		p.line("  progress %d of %d, saved %s", j.Done, j.Total, p.when(j.SavedAt))
	}
}

// event is a transition: a line, and the error beneath it.
func (p *runPrinter) event(e view.Event) {
	took := ""
	if !e.GrantedAt.IsZero() {
		took = ", took " + precisely(e)
	}
	who := e.Worker
	switch e.Writer {
	case "person":
		who = e.Actor
	case "recovery":
		who = "taken back from " + e.Worker
		if e.Worker == "" {
			who = "recovery"
		}
	}
	p.line("  %s  %s %s #%d%s", e.At.Format("2006-01-02 15:04:05.000Z"), pad(e.Event, 11), cut(safe(e.Step), 24), e.Attempt, took+by(who))
	if e.Code != "" || e.Class != "" || e.Reason != "" {
		p.text(28, "%s", strings.TrimLeft(strings.Join([]string{e.Class, e.Code, e.Reason}, " "), " "))
	}
	if e.Evidence != "" {
		p.text(28, "evidence: %s", e.Evidence)
	}
	if p.payloads {
		p.value(strings.Repeat(" ", 28)+"output ", e.Size, e.Output)
	}
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return ", " + who
}

func precisely(e view.Event) string {
	d := e.At.Sub(e.GrantedAt)
	if d.Seconds() < 60 {
		return fmt.Sprintf("%.3fs", d.Seconds())
	}
	return age(d)
}
