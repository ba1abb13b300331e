package steps

import (
	"errors"

	"github.com/pawlworks/pawl/internal/plan"
)

// Definition is a workflow with its graph of steps, ready for an engine. It
// may be wrong: see [Definition.Err].
type Definition struct {
	f *Flow
}

// Err returns all that is wrong with the definition, joined, or nil. Each
// problem names the workflow and, where there is one, the step.
func (d Definition) Err() error {
	if d.f == nil {
		return errors.New("a zero Definition: make one with Define or Of")
	}
	return d.f.err()
}

// Workflow returns the workflow's name.
func (d Definition) Workflow() string {
	if d.f == nil {
		return ""
	}
	return d.f.workflow
}

// Plan is for package engine: what the definition compiles to. It is nil when
// Err is not.
func (d Definition) Plan() *plan.Definition {
	if d.Err() != nil {
		return nil
	}
	return d.f.plan
}
