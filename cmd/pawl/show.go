package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pawlworks/pawl/internal/view"
)

// runShow prints all about one run.
func runShow(ctx context.Context, c *call) error {
	r := c.reading()
	workflow := c.flags.String("workflow", "", "the workflow, where several have started a run with that key")
	payloads := c.flags.Bool("payloads", false, "print input, outputs and result as well")
	name, err := r.withOne("a run's id or a key")
	if err != nil {
		return err
	}
	if err := stored(name); err != nil {
		return err
	}
	p := &runPrinter{&printer{w: c.out}, *payloads}
	return r.read(ctx, func(v *view.Reader) error {
		p.now = v.Now()
		ids, err := v.Find(ctx, name, *workflow)
		switch {
		case err != nil:
			return err
		case len(ids) == 0:
			return fmt.Errorf("no run has the id or the key %q", name)
		case len(ids) > 1:
			var found []string
			for _, id := range ids {
				one, err := v.Show(ctx, id, false)
				if err != nil {
					return err
				}
				found = append(found, safe(one.Workflow)+" "+id.String())
			}
			return fmt.Errorf("the key %q has started runs of several workflows: name one with -workflow, or take its id:\n  %s", name, strings.Join(found, "\n  "))
		}
		run, err := v.Show(ctx, ids[0], *payloads)
		if err != nil {
			return err
		}
		if *r.json {
			return printJSON(c.out, run)
		}
		p.run(run)
		return p.err
	})
}

type runPrinter struct {
	*printer
	payloads bool
}

func (p *runPrinter) run(v view.Run) {
	p.line("run %s of %s", v.ID, v.Workflow)
	if v.Key != "" {
		again := ""
		if v.Generation > 1 {
			again = fmt.Sprintf(" (its start number %d)", v.Generation)
		}
		p.line("  key      %s%s", v.Key, again)
	}
	state := v.State
	if v.Stranded {
		state = "stranded"
	}
	if v.Step != "" {
		state += " at " + v.Step
	}
	if v.Code != "" {
		state += ", " + v.Code
	}
	p.text(2, "state    %s", state)
	p.text(2, "next     %s", p.next(v.Next, v.NextAt))
	if v.Owner != "" {
		p.line("  owner    %s", v.Owner)
	}
	p.line("  started  %s", p.when(v.CreatedAt))
	if !v.EndedAt.IsZero() {
		p.line("  ended    %s, after %s", p.when(v.EndedAt), age(v.EndedAt.Sub(v.CreatedAt)))
	}
	if len(v.Tags) > 0 {
		p.text(2, "tags     %s", strings.Join(v.Tags, ", "))
	}
	if v.CancelledBy != "" {
		p.text(2, "cancel   asked for by %s: %s", v.CancelledBy, v.CancelReason)
	}
	if v.TraceParent != "" {
		p.line("  trace    %s", v.TraceParent)
	}
	p.value("  input    ", v.InputSize, v.Input)
	for _, j := range v.Jobs {
		p.job(j)
	}
	p.blank()
	p.line("TIMELINE")
	p.line("  %s  started", v.CreatedAt.UTC().Format("2006-01-02 15:04:05.000Z"))
	for _, e := range v.Timeline {
		p.event(e)
	}
	for _, a := range v.Acts {
		p.text(2, "%s  %s: %s: %s", a.At.Format("2006-01-02 15:04:05.000Z"), a.Act, a.Actor, a.Reason)
	}
	if len(v.Late) > 0 {
		p.blank()
		p.line("LATE RESULTS: came after their lease was lost, and changed nothing")
	}
	for _, l := range v.Late {
		p.text(2, "%s  %s, attempt %d of %s: %s %s %s", l.At.Format("2006-01-02 15:04:05.000Z"), l.Step, l.Attempt, l.Worker, l.Class, l.Code, l.Reason)
		p.value("    output ", l.Size, l.Output)
	}
	if v.State == "succeeded" {
		p.value("  result   ", v.ResultSize, v.Result)
	}
}

// next is what happens next, and when.
func (p *printer) next(what string, at time.Time) string {
	if at.IsZero() {
		return what
	}
	if !at.After(p.now) {
		return what + ", since " + p.since(at)
	}
	return what + ", " + p.when(at)
}

// value tells how large a payload is, and what it is if that was asked for.
func (p *runPrinter) value(name string, size int, value view.Payload) {
	switch {
	case size <= 0:
	case p.payloads:
		b, _ := value.MarshalJSON()
		p.text(0, "%s%s", name, b)
	default:
		p.line("%s%d bytes (-payloads shows it)", name, size)
	}
}
