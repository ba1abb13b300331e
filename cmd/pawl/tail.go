package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/view"
)

// runTail prints transitions as they are committed.
func runTail(ctx context.Context, c *call) error {
	r := c.reading()
	var t view.Tail
	c.flags.StringVar(&t.Workflow, "workflow", "", "of this workflow alone")
	run := c.flags.String("run", "", "of this `run` alone: an id or a key")
	since := c.flags.String("since", "", "begin with what has happened since this `time` or age, such as 10m")
	if err := r.noArgs(); err != nil {
		return err
	}
	for _, s := range []string{t.Workflow, *run} {
		if err := stored(s); err != nil {
			return err
		}
	}
	pool, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := view.Read(ctx, pool, func(v *view.Reader) (err error) {
		if t.Since, err = moment("-since", *since, v.Now()); err != nil || *run == "" {
			return err
		}
		ids, err := v.Find(ctx, *run, t.Workflow)
		if err == nil && len(ids) != 1 {
			err = fmt.Errorf("%d runs have the id or the key %q: name one by its id", len(ids), *run)
		}
		if err == nil {
			t.Run, t.Workflow = ids[0], ""
		}
		return err
	}); err != nil {
		return err
	}
	p, day := &printer{w: c.out}, ""
	if !*r.json {
		p.line("following what is committed, all times UTC; Ctrl-C ends it")
	}
	return t.Follow(ctx, pool, func(e view.Event) error {
		if *r.json {
			return printJSON(c.out, e)
		}
		if d := e.At.Format("2006-01-02"); d != day {
			day = d
			p.line("%s", d)
		}
		p.transition(e, t.Run == uuid.Nil)
		return p.err
	})
}

// transition is one in a line.
func (p *printer) transition(e view.Event, which bool) {
	run := ""
	if which {
		run = e.Run.String() + " "
	}
	p.line("%s %s%s %s #%d %s%s", e.At.Format("15:04:05.000"), run, pad(e.Event, 11), cut(safe(placeName(view.Place{Workflow: e.Workflow, Step: e.Step})), 26), e.Attempt, e.Code, by(e.Actor))
}
