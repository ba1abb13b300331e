package view

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pawlworks/pawl/internal/plan"
)

// Setting is the effective settings of a step, as the process said that knows
// its graph and started last.
type Setting struct {
	Workflow   string    `json:"workflow"`
	Definition int64     `json:"definition"`
	Newest     bool      `json:"newest"` // runs that are started now get this graph
	At         time.Time `json:"said_at,omitzero"`
	Number     int       `json:"number"`
	Step       string    `json:"step"`
	Stored     bool      `json:"stored"` // false: nothing is known but the name
	plan.Settings
}

// Settings returns those of a workflow's newest graph, or of all workflows; all
// adds older graphs.
func (r *Reader) Settings(ctx context.Context, workflow string, all bool) ([]Setting, error) {
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	newest := map[string]*definition{}
	var defs []*definition
	for _, d := range r.defs {
		defs = append(defs, d)
		if n := newest[d.workflow]; d.active && (n == nil || d.at.After(n.at) || d.at.Equal(n.at) && d.id > n.id) {
			newest[d.workflow] = d
		}
	}
	slices.SortFunc(defs, func(a, b *definition) int {
		if c := strings.Compare(a.workflow, b.workflow); c != 0 {
			return c
		}
		return int(b.id - a.id)
	})
	found := []Setting{}
	for _, d := range defs {
		if workflow != "" && d.workflow != workflow || !all && newest[d.workflow] != d {
			continue
		}
		for i, name := range d.steps {
			s := Setting{Workflow: d.workflow, Definition: d.id, Newest: newest[d.workflow] == d, Number: i, Step: name}
			if d.active {
				s.At = d.at.UTC()
			}
			if s.Settings, s.Stored = d.settings[name]; s.Given == nil {
				s.Given = []string{}
			}
			found = append(found, s)
		}
	}
	return found, nil
}
