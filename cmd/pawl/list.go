package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/view"
)

var states = []string{"cancelling", "dead", "uncertain", "running", "waiting", "scheduled", "succeeded", "failed", "undone", "cancelled", "stranded"}

// texts is a flag that may be given more than once.
type texts []string

func (t *texts) String() string     { return strings.Join(*t, ",") }
func (t *texts) Set(s string) error { *t = append(*t, s); return nil }

// runList prints runs, newest first.
func runList(ctx context.Context, c *call) error {
	r := c.reading()
	var f view.Filter
	var tags, state texts
	c.flags.StringVar(&f.Workflow, "workflow", "", "of this workflow")
	c.flags.Var(&state, "state", "in this `state`, or another if given again: "+strings.Join(states, ", "))
	c.flags.StringVar(&f.Step, "step", "", "that stands at this step, or died there")
	c.flags.StringVar(&f.Code, "code", "", "with this `code` of the last error there")
	c.flags.StringVar(&f.Key, "key", "", "started with this key")
	c.flags.Var(&tags, "tag", "with this `tag`; given again: with all of them")
	since := c.flags.String("since", "", "started since this `time`: 2006-01-02, 2006-01-02T15:04:05Z, or an age such as 90m or 7d")
	until := c.flags.String("until", "", "started before this `time`")
	before := c.flags.String("before", "", "older than this `run`: the next page")
	c.flags.IntVar(&f.Limit, "limit", 20, "how many at most, from 1 to 1000")
	if err := r.noArgs(); err != nil {
		return err
	}
	for _, s := range state {
		f.States = append(f.States, strings.Split(s, ",")...)
	}
	if slices.Contains(f.States, "dead") { // what status calls dead are steps: their runs have failed
		f.States = append(f.States, "failed")
	}
	for _, s := range f.States {
		if !slices.Contains(states, s) {
			return usagef("-state: %q is none of %s", s, strings.Join(states, ", "))
		}
	}
	if f.Tags = tags; f.Limit < 1 || f.Limit > 1000 {
		return usagef("-limit: %d is not from 1 to 1000", f.Limit)
	}
	if *before != "" {
		id, err := uuid.Parse(*before)
		if err != nil {
			return usagef("-before: %q is no run's id", *before)
		}
		f.Before = id
	}
	for _, s := range []string{f.Workflow, f.Step, f.Code, f.Key, strings.Join(f.Tags, "")} {
		if err := stored(s); err != nil {
			return err
		}
	}
	var items []view.Item
	p := &printer{w: c.out}
	err := r.read(ctx, func(v *view.Reader) (err error) {
		p.now = v.Now()
		if f.Since, err = moment("-since", *since, p.now); err != nil {
			return err
		}
		if f.Until, err = moment("-until", *until, p.now); err != nil {
			return err
		}
		items, err = v.List(ctx, f)
		return err
	})
	if err != nil {
		return err
	}
	for _, i := range items {
		if *r.json {
			if err := printJSON(c.out, i); err != nil {
				return err
			}
			continue
		}
		p.item(i)
	}
	if !*r.json && len(items) == 0 {
		p.line("no run fits")
	}
	if !*r.json && len(items) == f.Limit {
		p.line("older ones: the same with -before %s", items[len(items)-1].ID)
	}
	return p.err
}

// item is a run in two lines, or three.
func (p *printer) item(i view.Item) {
	state := i.State
	if i.Stranded {
		state = "stranded"
	}
	line := fmt.Sprintf("%s  %s %s", i.ID, pad(state, 10), cut(safe(placeName(i.Place)), 32))
	if i.Code != "" {
		line += "  " + i.Code
	}
	p.line("%s", line)
	line = "    started " + p.when(i.CreatedAt)
	switch {
	case !i.EndedAt.IsZero():
		line += ", ended " + p.when(i.EndedAt)
	case !i.DueAt.IsZero() && i.DueAt.After(p.now):
		line += ", due " + p.when(i.DueAt)
	case !i.DueAt.IsZero():
		line += ", due since " + p.since(i.DueAt)
	}
	p.line("%s", line)
	var more []string
	if i.Key != "" {
		more = append(more, "key "+i.Key)
	}
	if i.Owner != "" && i.Code != "" {
		more = append(more, "owner "+i.Owner)
	}
	if len(more) > 0 {
		p.line("    %s", strings.Join(more, "  "))
	}
}

// moment reads a time, or an age counted from now.
func moment(flag, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05Z", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	ago := s
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := time.ParseDuration(days + "h"); err == nil {
			ago = (24 * n).String()
		}
	}
	if d, err := time.ParseDuration(ago); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, usagef("%s: %q is no time such as 2006-01-02T15:04:05Z (UTC), and no age such as 90m or 7d", flag, s)
}

// stored refuses what no database holds.
func stored(s string) error {
	if safe(s) != s && strings.ContainsRune(s, 0) || strings.ToValidUTF8(s, "") != s {
		return usagef("%q is no text that can be stored", s)
	}
	return nil
}
