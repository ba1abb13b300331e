package view

import (
	"context"
	"time"
)

// Database is its health, as far as a queue depends on it.
type Database struct {
	Name            string    `json:"name"`
	Server          string    `json:"server"` // PostgreSQL's version
	Shards          int       `json:"shards"`
	Retention       string    `json:"retention,omitempty"` // for how long ended runs are kept; empty: for ever
	DeadRows        int64     `json:"job_dead_rows"`       // of pawl.job, by PostgreSQL's own count
	LiveRows        int64     `json:"job_live_rows"`
	JobBytes        int64     `json:"job_bytes"` // with its indexes
	VacuumedAt      time.Time `json:"job_vacuumed_at,omitzero"`
	PartitionsAhead int       `json:"partitions_ahead"` // days after today that have one; -1: not even today has
	Snapshot        *Snapshot `json:"oldest_snapshot,omitempty"`
	Hidden          bool      `json:"sessions_hidden,omitempty"` // this role may not see others' sessions
}

// Snapshot is who holds the oldest: what died since can't be cleared away.
type Snapshot struct {
	Kind  string    `json:"kind"` // session, prepared transaction, replication slot
	Who   string    `json:"who"`
	What  string    `json:"what"` // its state
	PID   int       `json:"pid,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// Beyond these the database's health is trouble.
const (
	snapshotOld   = 30 * time.Minute
	partitionsFew = 7
)

func (r *Reader) database(ctx context.Context, s *Status) error {
	h, err := r.q.Health(ctx)
	if err != nil {
		return err
	}
	s.Database = Database{Name: h.Name, Server: h.Server, Shards: len(r.shards), Retention: r.keep, DeadRows: h.DeadRows, LiveRows: h.LiveRows, JobBytes: h.JobBytes,
		PartitionsAhead: int(h.Ahead), Hidden: h.Hidden, VacuumedAt: moment(h.VacuumedAt)}
	rows, err := r.q.Snapshots(ctx)
	for _, x := range rows {
		v := Snapshot{Kind: x.Kind, Who: x.Who, What: x.What, PID: int(x.Pid), Since: x.Since.UTC()}
		if s.Database.Snapshot = &v; !v.Since.IsZero() && s.At.Sub(v.Since) > snapshotOld {
			s.trouble("snapshot", v.Since, "a %s holds an old snapshot, and dead rows can't be cleared away: %s", v.Kind, v.Who)
		}
	}
	switch {
	case h.Ahead < 0:
		s.trouble("partitions", time.Time{}, "the history has no partition for today: nothing can be written; does any worker run?")
	case h.Ahead < partitionsFew:
		s.trouble("partitions", time.Time{}, "the history has partitions for %d days ahead only; workers make 30", h.Ahead)
	}
	return err
}
