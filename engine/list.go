package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/db"
)

// Filter says which runs List returns: those that fit all that is set.
type Filter struct {
	Workflow string
	Key      string
	Tags     []string  // all of them
	States   []State   // one of them; Stranded among them adds those that are
	Step     string    // where a live or failed run stands
	Code     string    // of the last error there
	Since    time.Time // started then or later
	Until    time.Time // started before; zero: no limit
	Before   string    // an id: only older runs, for the next page
	Limit    int       // default 100, at most 1,000
}

// List returns runs, newest first.
func (e *Engine) List(ctx context.Context, f Filter) ([]RunInfo, error) {
	p := db.ListRunsParams{Workflow: f.Workflow, Key: f.Key, Tags: f.Tags, Step: f.Step, Code: f.Code, States: []string{}, Since: f.Since, Until: f.Until,
		Before: uuid.Max, Most: int32(f.Limit)}
	for what, s := range map[string]string{"workflow": f.Workflow, "key": f.Key, "step": f.Step, "code": f.Code} {
		if err := badText(what, s, 1000); err != nil {
			return nil, err
		}
	}
	for _, s := range f.States {
		p.States = append(p.States, string(s))
	}
	if p.Tags == nil {
		p.Tags = []string{}
	}
	if p.Until.IsZero() {
		p.Until = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if f.Before != "" {
		id, err := uuid.Parse(f.Before)
		if err != nil {
			return nil, fmt.Errorf("pawl: Filter.Before %q is not a run's id", clean(f.Before, 100))
		}
		p.Before = id
	}
	if f.Limit < 0 || f.Limit > 1000 {
		return nil, fmt.Errorf("pawl: Filter.Limit is %d, not from 1 to 1,000", f.Limit)
	}
	if f.Limit == 0 {
		p.Most = 100
	}
	rows, err := e.db.ListRuns(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("pawl: listing runs: %w", err)
	}
	var out []RunInfo
	for _, r := range rows {
		i := RunInfo{ID: r.ID.String(), Workflow: r.Workflow, Key: text(r.Key), State: State(text(r.State)), Priority: Priority(r.Priority), Tags: r.Tags,
			CreatedAt: r.CreatedAt, EndedAt: moment0(r.EndedAt), Code: text(r.Code), DueAt: soon(*r.DueAt)}
		if r.StepNode != nil {
			if g, err := decodeGraph(r.Graph); err == nil {
				i.Step = g.name(int(*r.StepNode))
				i.Owner = ownerOf(text(r.Settings), i.Step)
			}
		}
		out = append(out, i)
	}
	return out, nil
}
