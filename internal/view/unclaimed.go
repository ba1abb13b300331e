package view

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/db"
)

// Unclaimed is due work that no live worker takes.
type Unclaimed struct {
	Place
	Queue    string    `json:"queue"`
	Stranded bool      `json:"stranded"` // workers are alive, and none knows the step
	Count    int64     `json:"count"`
	Since    time.Time `json:"since"`
	Why      string    `json:"why"`
	Oldest   uuid.UUID `json:"oldest_run"`
}

// unclaimedMost is how many due jobs of each route are looked at.
const unclaimedMost = 1000

// unclaimed reads what is due and nobody takes, and says why.
func (r *Reader) unclaimed(ctx context.Context, s *Status) error {
	rows, err := r.q.Unclaimable(ctx, db.UnclaimableParams{Shards: r.shards, Most: unclaimedMost})
	var n int64
	var since time.Time
	for _, c := range rows {
		u := Unclaimed{Place: r.place(c.Definition, c.Node), Queue: c.Queue, Count: c.Jobs, Since: c.Since.UTC(), Oldest: c.RunID}
		u.Stranded, u.Why = r.why(s.alive(), c.Definition, c.Queue, c.Floor)
		s.Unclaimed = append(s.Unclaimed, u)
		n, since = n+u.Count, earliest(since, u.Since)
	}
	if n > 0 {
		s.trouble("unclaimed", since, "%s that no live worker takes", counted(n, unclaimedMost, "job is due", "jobs are due"))
	}
	return err
}

// why nobody takes what is due on a route of which the live workers know the
// steps from floor on, or none.
func (r *Reader) why(alive []Worker, def int64, queue string, floor int32) (stranded bool, why string) {
	d := r.defs[def]
	if len(alive) == 0 {
		return false, "no worker is alive: start one"
	}
	if d == nil {
		return true, "its definition can't be read"
	}
	has := func(fits func(Worker) bool) bool { return slices.ContainsFunc(alive, fits) }
	switch {
	case floor > 0:
		return true, fmt.Sprintf("the live workers' code knows this workflow only from step %q on: deploy a build that has this step, or Formerly", d.step(floor))
	case has(func(w Worker) bool { return slices.Contains(w.definitions, def) }):
		return false, fmt.Sprintf("no live worker serves queue %q: start one whose Config.Queues is empty or names it", queue)
	case has(func(w Worker) bool { return slices.Contains(w.Workflows, d.workflow) }):
		return true, "the live workers' code has this workflow, but not the graph that this run was started with"
	}
	why = fmt.Sprintf("no live worker has workflow %q: deploy one that names it in Config.Workflows", d.workflow)
	if !has(func(w Worker) bool { return slices.Contains(w.Queues, queue) }) {
		why += fmt.Sprintf(", and serves queue %q, which none does either", queue)
	}
	return true, why
}
