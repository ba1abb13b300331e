package view

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/db"
)

// Event is a transition: how one attempt, or one wait, ended.
type Event struct {
	At        time.Time `json:"at"`
	Run       uuid.UUID `json:"run_id"`
	Workflow  string    `json:"workflow,omitempty"`
	Key       string    `json:"key,omitempty"`
	Step      string    `json:"step"`
	Path      string    `json:"path,omitempty"`
	Event     string    `json:"event"` // as in engine.Transition
	From      string    `json:"from"`
	To        string    `json:"to"`
	Attempt   int       `json:"attempt"`
	GrantedAt time.Time `json:"granted_at,omitzero"` // of the lease that it closed
	Class     string    `json:"class,omitempty"`
	Code      string    `json:"code,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Writer    string    `json:"writer"` // worker, recovery, reconciler, person
	Worker    string    `json:"worker,omitempty"`
	Actor     string    `json:"actor,omitempty"`
	Evidence  string    `json:"evidence,omitempty"`
	Size      int       `json:"output_bytes,omitempty"`
	Output    Payload   `json:"output,omitempty"`
	Job       int64     `json:"job"`
	Token     int64     `json:"token"`

	xid string // of the transaction that wrote it
}

const timelinePage = 1000

func (r *Reader) timeline(ctx context.Context, v *Run, payloads bool) error {
	v.Timeline = []Event{}
	d := r.defs[v.Definition]
	p := db.HistoryToShowParams{Payloads: payloads, Shard: shardOf(v.ID), RunID: v.ID, Most: timelinePage}
	for {
		rows, err := r.q.HistoryToShow(ctx, p)
		if err != nil {
			return err
		}
		for _, h := range rows {
			v.Timeline = append(v.Timeline, Event{At: h.EndedAt.UTC(), Run: v.ID, Workflow: v.Workflow, Key: v.Key, Step: d.step(h.Node), Path: h.Path, Event: h.Event, From: h.FromState,
				To: h.ToState, Attempt: int(h.Attempt), GrantedAt: moment(h.GrantedAt), Class: text(h.Class), Code: text(h.Code), Reason: text(h.Reason), Writer: h.Writer,
				Worker: text(h.Worker), Actor: text(h.Actor), Evidence: text(h.Evidence), Size: max(int(h.Size), 0), Output: h.Output, Job: h.Job, Token: h.Token})
		}
		if len(rows) < timelinePage {
			return nil
		}
		p.AfterJob, p.AfterToken = rows[len(rows)-1].Job, rows[len(rows)-1].Token
	}
}
