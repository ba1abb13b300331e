package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawlworks/pawl/internal/plan"
	"github.com/pawlworks/pawl/internal/view"
)

// runSettings prints the effective settings of every step.
func runSettings(ctx context.Context, c *call) error {
	r := c.reading()
	workflow := c.flags.String("workflow", "", "of this workflow alone")
	all := c.flags.Bool("all", false, "of older graphs too, which runs may still follow")
	if err := r.noArgs(); err != nil {
		return err
	}
	var found []view.Setting
	p := &printer{w: c.out}
	if err := r.read(ctx, func(v *view.Reader) (err error) {
		p.now = v.Now()
		found, err = v.Settings(ctx, *workflow, *all)
		return err
	}); err != nil {
		return err
	}
	if len(found) == 0 && *workflow != "" {
		return fmt.Errorf("no process that has workflow %q has ever started on this database", *workflow)
	}
	if *r.json {
		for _, s := range found {
			if err := printJSON(c.out, s); err != nil {
				return err
			}
		}
		return nil
	}
	if len(found) == 0 {
		p.line("no process that has a workflow has ever started on this database")
	}
	definition := int64(0)
	for _, s := range found {
		if s.Definition != definition {
			definition = s.Definition
			newest := "; an older graph, for runs that were started with it"
			if s.Newest {
				newest = ""
			}
			p.line("%s: definition %d, as the process said that started %s%s", s.Workflow, s.Definition, p.when(s.At), newest)
		}
		p.setting(s)
	}
	p.line("* a default. Every step is dead when %d leases in a row have lapsed without its cursor moving.", plan.Lapses)
	return p.err
}

// setting is a step's settings; an asterisk marks what nobody chose.
func (p *printer) setting(s view.Setting) {
	p.line("  %d %s (%s)", s.Number, s.Step, s.Kind)
	if !s.Stored {
		p.line("      its settings are not known")
		return
	}
	star := func(name, text string) string {
		if slices.Contains(s.Given, name) {
			return text
		}
		return text + "*"
	}
	p.text(6, "effect       %s", star("effect", effectText(s.Settings)))
	if s.Questions != nil {
		p.text(6, "questions    %s", budget("questions", *s.Questions, star))
	}
	owner := "nobody"
	if s.Owner != "" {
		owner = s.Owner
	}
	p.text(6, "owner        %s", star("owner", owner))
	p.line("      queue        %s", star("queue", s.Queue))
	p.line("      lease        %s, renewed every %s, max runtime %s", star("lease", span(s.LeaseMs)), star("heartbeat", span(s.HeartbeatMs)), star("max_runtime", span(s.MaxRuntimeMs)))
	p.text(6, "retry        %s", budget("retry", s.Retry, star))
	p.text(6, "unclassified %s", budget("retry_unknown", s.RetryUnknown, star))
	if s.Classifier {
		p.line("      classifier   the step's own, before the defaults")
	}
	if len(s.Formerly) > 0 {
		p.text(6, "formerly     %s", strings.Join(s.Formerly, ", "))
	}
}

func effectText(s plan.Settings) string {
	switch s.Effect {
	case plan.Idempotent:
		return "idempotent: sent again with the same key within " + span(s.TTLMs)
	case plan.LookUp:
		return fmt.Sprintf("looked up when unknown; \"never happened\" counts after %s", span(s.LateMs))
	case plan.Manual:
		return "manual: when unknown, a person says what became of it"
	}
	if s.Kind == plan.Tx {
		return "none: its writes commit with the step"
	}
	return "none declared: the body may run more than once"
}

func budget(name string, b plan.Budget, star func(name, text string) string) string {
	within := "without a limit of time"
	if b.WithinMs != plan.Endless {
		within = "within " + span(b.WithinMs)
	}
	return fmt.Sprintf("%s times, %s; delays up to %s at first, %s at last", star(name+".attempts", fmt.Sprint(b.Attempts)), star(name+".within", within),
		star(name+".delay", span(b.DelayMs)), star(name+".max_delay", span(b.MaxDelayMs)))
}

func span(ms int64) string {
	if ms == plan.Endless {
		return "ever"
	}
	d := time.Duration(ms) * time.Millisecond
	if d%time.Second != 0 {
		return d.String()
	}
	return age(d)
}
