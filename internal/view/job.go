package view

import (
	"context"
	"fmt"
	"time"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/plan"
)

// Job is a live position of a run, or a dead one.
type Job struct {
	ID          int64     `json:"id"`
	Step        string    `json:"step"`
	Path        string    `json:"path,omitempty"`
	Queue       string    `json:"queue"`
	State       string    `json:"state"` // pending, running, waiting, uncertain, dead
	Mode        string    `json:"mode"`  // do; ask: about an uncertain effect; settled: its outcome is known, the run is carried on
	Attempt     int       `json:"attempt"`
	Transients  int       `json:"transient_failures"`
	Unknowns    int       `json:"unknown_failures"`
	Lapses      int       `json:"lapses"`
	Questions   int       `json:"questions"`
	Code        string    `json:"code,omitempty"`
	DueAt       time.Time `json:"due_at,omitzero"`
	FailedAt    time.Time `json:"failed_at,omitzero"` // first failure of this step
	Uncertain   time.Time `json:"uncertain_at,omitzero"`
	GrantedAt   time.Time `json:"granted_at,omitzero"`
	ExpiresAt   time.Time `json:"expires_at,omitzero"`
	Deadline    time.Time `json:"deadline_at,omitzero"`
	Worker      string    `json:"worker,omitempty"`
	WorkerHost  string    `json:"worker_host,omitempty"`
	WorkerPID   int       `json:"worker_pid,omitempty"`
	WorkerAlive bool      `json:"worker_alive"`
	EffectKey   string    `json:"effect_key,omitempty"` // what the body sees as its idempotency key
	EffectAt    time.Time `json:"effect_at,omitzero"`   // first grant of the effect
	Done        int64     `json:"done,omitempty"`
	Total       int64     `json:"total,omitempty"`
	SavedAt     time.Time `json:"cursor_saved_at,omitzero"`
	Stranded    bool      `json:"stranded"`
	Next        string    `json:"next"`
	NextAt      time.Time `json:"next_at,omitzero"`
}

func (r *Reader) jobs(ctx context.Context, v *Run, _ bool) error {
	v.Jobs = []Job{}
	rows, err := r.q.JobsToShow(ctx, db.JobsToShowParams{Shard: shardOf(v.ID), RunID: v.ID})
	if err != nil || len(rows) == 0 {
		return err
	}
	var alive []Worker // only to say why nobody takes what is due
	for _, x := range rows {
		d := r.defs[v.Definition]
		j := Job{ID: x.ID, Step: d.step(x.Node), Path: x.Path, Queue: x.Queue, State: x.State, Mode: x.Mode, Attempt: int(x.Attempt), Transients: int(x.Transients),
			Unknowns: int(x.Unknowns), Lapses: int(x.Lapses), Questions: int(x.Questions), Code: text(x.Code), DueAt: soon(x.DueAt), FailedAt: moment(x.FailedAt),
			Uncertain: moment(x.UncertainAt), GrantedAt: moment(x.GrantedAt), ExpiresAt: moment(x.ExpiresAt), Deadline: moment(x.DeadlineAt), Worker: text(x.Worker),
			WorkerHost: text(x.Host), WorkerAlive: x.WorkerAlive, EffectAt: moment(x.EffectAt)}
		if x.Pid != nil {
			j.WorkerPID = int(*x.Pid)
		}
		if x.EffectKey != nil {
			j.EffectKey = keyText(x.EffectKey)
		}
		if x.Done != nil {
			j.Done, j.Total, j.SavedAt = *x.Done, *x.Total, moment(x.SavedAt)
		}
		taken := x.Floor >= 0 && x.Node >= x.Floor
		why := ""
		if j.State == "pending" && !taken {
			if alive == nil {
				var s Status
				if err := r.load(ctx); err != nil {
					return err
				}
				if err := r.workers(ctx, &s); err != nil {
					return err
				}
				alive = s.alive()
			}
			j.Stranded, why = r.why(alive, v.Definition, x.Queue, x.Floor)
		}
		r.nextOf(&j, d.settings[j.Step], x.Now, why)
		v.Jobs = append(v.Jobs, j)
	}
	return nil
}

// nextOf says what happens next of a job, and when. why is why no live worker
// takes it.
func (r *Reader) nextOf(j *Job, set plan.Settings, now time.Time, why string) {
	due := !j.DueAt.After(now)
	who := func(what string) string {
		if set.Owner != "" {
			return set.Owner + ": " + what
		}
		return what
	}
	switch {
	case j.State == "dead":
		j.Next = who("mend the cause, then engine.Replay, or engine.Cancel")
	case j.State == "running" && !j.ExpiresAt.After(now):
		j.Next, j.NextAt = "its lease is over: any worker takes it back", j.ExpiresAt
	case j.State == "running" && !j.WorkerAlive:
		j.Next, j.NextAt = "its worker is silent: any other takes it back", j.ExpiresAt
	case j.State == "running" && j.Mode == "ask":
		j.Next = "the look-up is under way"
	case j.State == "running":
		j.Next, j.NextAt = "it runs; without progress its lease ends", j.ExpiresAt
	case j.State == "uncertain" && j.DueAt.IsZero():
		e := Effect{Place: Place{Step: j.Step}, Person: true, Code: j.Code}
		j.Next = who(r.question(e, set) + " (engine.Resolve)")
	case j.State == "uncertain" && due && now.Sub(j.DueAt) > lateAfter:
		j.Next, j.NextAt = "its look-up is due, and no worker asks", j.DueAt
	case j.State == "uncertain":
		j.Next, j.NextAt = "its look-up asks what became of the effect", j.DueAt
	case j.State == "pending" && due && why != "":
		j.Next, j.NextAt = "it is due and nobody takes it: "+why, j.DueAt
	case j.State == "pending" && due && j.Mode == "ask":
		j.Next, j.NextAt = "a worker asks what became of the effect", j.DueAt
	case j.State == "pending" && due:
		j.Next, j.NextAt = "the next free worker takes it", j.DueAt
	case j.State == "pending" && (j.Attempt > 0 || j.Transients+j.Unknowns+j.Lapses > 0):
		j.Next, j.NextAt = fmt.Sprintf("attempt %d%s", j.Attempt+1, ofBudget(j, set)), j.DueAt
	case j.State == "pending":
		j.Next, j.NextAt = "it becomes due", j.DueAt
	default:
		j.Next, j.NextAt = j.State, j.DueAt
	}
}

// ofBudget says how much of the budget is spent.
func ofBudget(j *Job, set plan.Settings) string {
	switch {
	case set.Retry.Attempts == 0:
		return ""
	case j.Unknowns > j.Transients:
		return fmt.Sprintf(" (%d of %d failures that nothing classifies)", j.Unknowns, set.RetryUnknown.Attempts)
	case j.Transients > 0:
		return fmt.Sprintf(" (%d of %d transient failures)", j.Transients, set.Retry.Attempts)
	case j.Lapses > 0:
		return fmt.Sprintf(" (%d of %d lapses)", j.Lapses, plan.Lapses)
	}
	return ""
}

// next is what happens next of the run.
func (r *Reader) next(v *Run) {
	switch {
	case !v.EndedAt.IsZero() && v.State != "failed":
		v.Next = "nothing: it has ended"
	case v.State == "cancelling" && len(v.Jobs) > 0 && v.Jobs[0].State == "uncertain":
		v.Next, v.NextAt = "it is cancelled once the effect is settled: "+v.Jobs[0].Next, v.Jobs[0].NextAt
	case v.State == "cancelling":
		v.Next = "it is cancelled at the step's end"
	case len(v.Jobs) > 0:
		v.Next, v.NextAt = v.Jobs[0].Next, v.Jobs[0].NextAt
	default:
		v.Next = "nothing, though it lives: run pawl doctor"
	}
}
