package view

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/db"
)

// Worker is a process that works, or should.
type Worker struct {
	ID        uuid.UUID `json:"id"` // of its session: the owner of its leases
	Name      string    `json:"name"`
	Host      string    `json:"host"`
	PID       int       `json:"pid"`
	Build     string    `json:"build"`
	Pawl      string    `json:"pawl"`
	State     string    `json:"state"` // alive; silent: its session has lapsed; gone: and was closed by others, within the last hour
	StartedAt time.Time `json:"started_at"`
	LapsedAt  time.Time `json:"lapsed_at,omitzero"`
	Running   int64     `json:"running"` // leases it holds
	Queues    []string  `json:"queues"`
	Workflows []string  `json:"workflows"`

	definitions []int64
}

const (
	workersMost = 500
	runningMost = 100_000
)

// workers reads who works, and what runs.
func (r *Reader) workers(ctx context.Context, s *Status) error {
	rows, err := r.q.Workers(ctx, workersMost)
	if err != nil {
		return err
	}
	running, err := r.q.RunningJobs(ctx, db.RunningJobsParams{Shards: r.shards, Most: r.each(runningMost)})
	if err != nil {
		return err
	}
	held := map[uuid.UUID]int64{}
	var lapsed int64
	var since time.Time
	for _, j := range running {
		held[j.Owner] += j.Jobs
		q := s.queue(j.Queue)
		q.Running += j.Jobs
		if at := soon(j.LapsedAt); j.Lapsed > 0 && s.At.Sub(at) > lateAfter {
			lapsed, since = lapsed+j.Lapsed, earliest(since, at)
		}
	}
	for _, w := range rows {
		v := Worker{ID: w.ID, Name: w.Name, Host: w.Host, PID: int(w.Pid), Build: w.Build, Pawl: w.Pawl, State: "alive", StartedAt: w.StartedAt.UTC(), Running: held[w.ID],
			Queues: w.Queues, Workflows: []string{}, definitions: w.Definitions}
		switch {
		case w.ClosedAt != nil:
			v.State, v.LapsedAt = "gone", w.ExpiresAt.UTC()
		case !w.Alive:
			v.State, v.LapsedAt = "silent", w.ExpiresAt.UTC()
		}
		for _, d := range w.Definitions {
			if def := r.defs[d]; def != nil && !slices.Contains(v.Workflows, def.workflow) {
				v.Workflows = append(v.Workflows, def.workflow)
			}
		}
		slices.Sort(v.Workflows)
		s.Workers = append(s.Workers, v)
	}
	if len(s.alive()) == 0 {
		var silent time.Time
		for _, w := range s.Workers {
			if w.State == "silent" {
				silent = earliest(silent, w.LapsedAt)
			}
		}
		if !silent.IsZero() {
			s.trouble("workers", silent, "no worker is alive: the last ones have stopped without saying so")
		}
	}
	if lapsed > 0 {
		s.trouble("lapsed", since, "%s: no worker is alive that does it", counted(lapsed, runningMost, "lease is over and nobody takes the job back", "leases are over and nobody takes the jobs back"))
	}
	return nil
}

// alive are the workers whose sessions are good.
func (s *Status) alive() (alive []Worker) {
	for _, w := range s.Workers {
		if w.State == "alive" {
			alive = append(alive, w)
		}
	}
	return alive
}
