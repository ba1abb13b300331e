package view

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Status is one look at a database: is it well, and if not, why.
type Status struct {
	At        time.Time   `json:"at"` // by the database's clock
	Well      bool        `json:"well"`
	Since     time.Time   `json:"since,omitzero"` // since when it is not well: the oldest trouble
	Troubles  []Trouble   `json:"troubles"`       // what a person must see to
	Dead      []Cause     `json:"dead"`
	Failing   []Failing   `json:"failing"` // and is tried again by itself
	Effects   []Effect    `json:"effects"` // whose outcome is not known
	Unclaimed []Unclaimed `json:"unclaimed"`
	Workers   []Worker    `json:"workers"`
	Queues    []Queue     `json:"queues"`
	Database  Database    `json:"database"`
}

// Trouble is something that does not get well by itself.
type Trouble struct {
	Kind  string    `json:"kind"` // dead, resolve, question, workers, lapsed, unclaimed, partitions, snapshot
	What  string    `json:"what"`
	Since time.Time `json:"since,omitzero"`
}

// Cause is why runs are dead: one place, one code.
type Cause struct {
	Place
	Code   string    `json:"code"`
	Count  int64     `json:"count"`
	First  time.Time `json:"first"`
	Last   time.Time `json:"last"`
	Newest uuid.UUID `json:"newest_run"`
	Reason string    `json:"reason,omitempty"` // the newest run's
}

// Failing is what fails at one place and is tried again.
type Failing struct {
	Place
	Code     string    `json:"code"`
	Count    int64     `json:"count"`
	First    time.Time `json:"first"`
	Next     time.Time `json:"next,omitzero"` // the next attempt
	Attempts int       `json:"attempts"`      // at most so far
	Budget   int       `json:"budget,omitempty"`
	GivesUp  time.Time `json:"gives_up_at,omitzero"` // by time, the first of them
	Oldest   uuid.UUID `json:"oldest_run"`
	Reason   string    `json:"reason,omitempty"` // the oldest run's
}

// Effect is effects of one place whose outcome is not known.
type Effect struct {
	Place
	Code      string    `json:"code"`
	Person    bool      `json:"person"` // a person must resolve them
	Count     int64     `json:"count"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	Next      time.Time `json:"next,omitzero"` // the next question
	Questions int       `json:"questions"`     // asked at most so far
	Budget    int       `json:"budget,omitempty"`
	Late      bool      `json:"late"` // the question is due, and nobody asks
	What      string    `json:"what_next"`
	Oldest    uuid.UUID `json:"oldest_run"`
	Reason    string    `json:"reason,omitempty"` // the oldest run's
}

// causesMost is how many jobs of a kind are looked at for their causes;
// lateAfter is for how long a question may be due, and a lease be over, before
// that is trouble.
const (
	causesMost = 10_000
	lateAfter  = time.Minute
)

// Status reads how the database is.
func (r *Reader) Status(ctx context.Context) (Status, error) {
	s := Status{At: r.now.UTC(), Troubles: []Trouble{}, Dead: []Cause{}, Failing: []Failing{}, Effects: []Effect{}, Unclaimed: []Unclaimed{}, Workers: []Worker{}, Queues: []Queue{}}
	if err := r.load(ctx); err != nil {
		return s, err
	}
	for _, read := range []func(context.Context, *Status) error{r.dead, r.failing, r.effects, r.workers, r.unclaimed, r.queues, r.database, r.reasons} {
		if err := read(ctx, &s); err != nil {
			return s, fmt.Errorf("pawl: reading the status: %w", err)
		}
	}
	for _, t := range s.Troubles {
		if !t.Since.IsZero() && (s.Since.IsZero() || t.Since.Before(s.Since)) {
			s.Since = t.Since
		}
	}
	s.Well = len(s.Troubles) == 0
	return s, nil
}

func (s *Status) trouble(kind string, since time.Time, format string, args ...any) {
	s.Troubles = append(s.Troubles, Trouble{kind, fmt.Sprintf(format, args...), since})
}

// each is how many rows of each shard are looked at.
func (r *Reader) each(most int) int32 {
	return int32(max(most/max(len(r.shards), 1), 100))
}

// counted tells a number, which is a lower limit if it is that many.
func counted(n int64, most int, one, many string) string {
	switch {
	case n == 1:
		return "1 " + one
	case n >= int64(most):
		return fmt.Sprintf("at least %d %s", n, many)
	}
	return fmt.Sprintf("%d %s", n, many)
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
