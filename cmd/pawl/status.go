package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/pawlworks/pawl/internal/view"
)

// runStatus prints whether all is well, and what is not: causes before rows.
func runStatus(ctx context.Context, c *call) error {
	r := c.reading()
	all := c.flags.Bool("all", false, "all causes, workers and queues; else the foremost of each, for one screen")
	if err := r.noArgs(); err != nil {
		return err
	}
	var s view.Status
	if err := r.read(ctx, func(v *view.Reader) (err error) { s, err = v.Status(ctx); return err }); err != nil {
		return err
	}
	err := error(nil)
	if *r.json {
		err = printJSON(c.out, s)
	} else {
		p := statusPrinter{&printer{w: c.out, now: s.At}, 4}
		if *all {
			p.most = 1 << 30
		}
		p.status(s)
		err = p.err
	}
	if err == nil && !s.Well {
		return errTold
	}
	return err
}

type statusPrinter struct {
	*printer
	most int // entries of each section
}

func (p statusPrinter) status(s view.Status) {
	p.line("pawl: database %s, PostgreSQL %s, %s", s.Database.Name, strings.Fields(s.Database.Server + " ?")[0], s.At.UTC().Format("2006-01-02 15:04:05Z"))
	switch {
	case s.Well:
		p.line("WELL: nothing needs a person")
	case s.Since.IsZero():
		p.line("NOT WELL")
	default:
		p.line("NOT WELL since %s", p.since(s.Since))
	}
	for _, t := range s.Troubles {
		since := ""
		if !t.Since.IsZero() {
			since = ", since " + age(s.At.Sub(t.Since))
		}
		p.text(2, "! %s%s", t.What, since)
	}
	p.dead(s.Dead)
	p.effects(s.Effects)
	p.unclaimed(s.Unclaimed)
	p.failing(s.Failing)
	p.workers(s.Workers)
	p.queues(s.Queues)
	p.database(s)
}

// some prints the first entries, and how many there are besides.
func (p statusPrinter) some(n int, entry func(i int)) {
	for i := range min(n, p.most) {
		entry(i)
	}
	if n > p.most {
		p.line("  and %d more: pawl status -all", n-p.most)
	}
}

// headline is a cause's first line: how many, where, which code, who must look.
func (p statusPrinter) headline(n int64, at view.Place, code string) {
	who := "  no owner"
	if at.Owner != "" {
		who = "  owner " + cut(safe(at.Owner), 20)
	}
	if code == "" {
		code = "-"
	}
	p.line("%7d  %s  %s%s", n, cut(safe(placeName(at)), 44), cut(safe(code), 18), who)
}

// reason is what was said last, in two lines at most.
func (p statusPrinter) reason(said string) {
	if said != "" {
		p.text(9, "says: %s", cut(safe(said), 2*(screen-18)))
	}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprint(n, " times")
}

func placeName(at view.Place) string {
	if at.Step == "" {
		return at.Workflow
	}
	return at.Workflow + "/" + at.Step
}

func (p statusPrinter) dead(causes []view.Cause) {
	if len(causes) == 0 {
		return
	}
	p.blank()
	p.line("DEAD: stays so until a person mends the cause and replays or cancels (your code: engine.Replay, Cancel)")
	p.some(len(causes), func(i int) {
		c := causes[i]
		p.headline(c.Count, c.Place, c.Code)
		if c.Count > 1 {
			p.line("         first %s", p.when(c.First))
		}
		p.line("         last  %s", p.when(c.Last))
		p.reason(c.Reason)
		p.line("         pawl show %s", c.Newest)
		p.others(c.Count, "failed", c.Place, c.Code)
	})
}

func (p statusPrinter) effects(effects []view.Effect) {
	if len(effects) == 0 {
		return
	}
	p.blank()
	p.line("UNCERTAIN: effects that may or may not have happened; none is repeated meanwhile")
	p.some(len(effects), func(i int) {
		e := effects[i]
		p.headline(e.Count, e.Place, e.Code)
		p.line("         since %s", p.since(e.First))
		next := ""
		if !e.Next.IsZero() {
			next = ", " + p.when(e.Next)
		}
		p.text(9, "next: %s%s", e.What, next)
		if e.Questions > 0 {
			asked := "asked so far: " + times(e.Questions)
			if e.Budget > 0 {
				asked += fmt.Sprintf(", of %d; then a person must say", e.Budget)
			}
			p.line("         %s", asked)
		}
		p.reason(e.Reason)
		p.line("         pawl show %s", e.Oldest)
		p.others(e.Count, "uncertain", e.Place, e.Code)
	})
}

// others tells how to list the runs of a cause, if there are several.
func (p statusPrinter) others(n int64, state string, at view.Place, code string) {
	if plain := at.Workflow + at.Step + code; n > 1 && !strings.ContainsFunc(plain, func(r rune) bool { return r <= ' ' || strings.ContainsRune("'\"`$\\;&|<>(){}*?!#~", r) || r > '~' }) {
		p.text(9, "pawl list -state %s -workflow %s -step %s -code %s", state, at.Workflow, at.Step, code)
	}
}

func (p statusPrinter) unclaimed(all []view.Unclaimed) {
	if len(all) == 0 {
		return
	}
	p.blank()
	p.line("NOBODY TAKES: due, and no live worker may run it")
	p.some(len(all), func(i int) {
		u := all[i]
		stranded := ""
		if u.Stranded {
			stranded = "STRANDED"
		}
		p.headline(u.Count, u.Place, stranded)
		p.line("         since %s, in queue %s", p.since(u.Since), u.Queue)
		p.text(9, "why: %s", u.Why)
		p.line("         next: nothing until then; it runs as soon as such a worker is there")
		p.line("         pawl show %s", u.Oldest)
	})
}

func (p statusPrinter) failing(all []view.Failing) {
	if len(all) == 0 {
		return
	}
	p.blank()
	p.line("FAILING: is tried again by itself, until its budget is spent")
	p.some(len(all), func(i int) {
		f := all[i]
		p.headline(f.Count, f.Place, f.Code)
		failed := "failed " + times(f.Attempts)
		if f.Count > 1 {
			failed = "failed up to " + times(f.Attempts) + " each"
		}
		if f.Budget > 0 {
			failed += fmt.Sprintf(", dead after %d", f.Budget)
		}
		if !f.GivesUp.IsZero() {
			failed += ", or " + age(f.GivesUp.Sub(f.First)) + " after the first"
		}
		p.line("         since %s; %s", p.since(f.First), failed)
		if !f.Next.IsZero() {
			p.line("         next  %s", p.when(f.Next))
		}
		p.reason(f.Reason)
		p.line("         pawl show %s", f.Oldest)
		p.others(f.Count, "scheduled", f.Place, f.Code)
	})
}
