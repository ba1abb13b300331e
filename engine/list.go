package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/view"
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
	v := view.Filter{Workflow: f.Workflow, Key: f.Key, Tags: f.Tags, Step: f.Step, Code: f.Code, Since: f.Since, Until: f.Until, Limit: f.Limit}
	for what, s := range map[string]string{"workflow": f.Workflow, "key": f.Key, "step": f.Step, "code": f.Code} {
		if err := badText(what, s, 1000); err != nil {
			return nil, err
		}
	}
	for _, t := range f.Tags {
		if err := badText("tag", t, 1000); err != nil {
			return nil, err
		}
	}
	for _, s := range f.States {
		if err := badText("state", string(s), 1000); err != nil {
			return nil, err
		}
		v.States = append(v.States, string(s))
	}
	if f.Before != "" {
		id, err := uuid.Parse(f.Before)
		if err != nil {
			return nil, fmt.Errorf("pawl: Filter.Before %q is not a run's id", clean(f.Before, 100))
		}
		v.Before = id
	}
	if f.Limit < 0 || f.Limit > 1000 {
		return nil, fmt.Errorf("pawl: Filter.Limit is %d, not from 1 to 1,000", f.Limit)
	}
	if f.Limit == 0 {
		v.Limit = 100
	}
	items, err := view.On(e.db, e.shards).List(ctx, v)
	if err != nil {
		return nil, err
	}
	var out []RunInfo
	for _, i := range items {
		out = append(out, RunInfo{ID: i.ID.String(), Workflow: i.Workflow, Key: i.Key, State: State(i.State), Priority: Priority(i.Priority), Tags: i.Tags,
			CreatedAt: i.CreatedAt, EndedAt: i.EndedAt, Step: i.Step, Owner: i.Owner, Code: i.Code, DueAt: i.DueAt})
	}
	return out, nil
}
