package view

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/plan"
)

// dead reads why runs are dead.
func (r *Reader) dead(ctx context.Context, s *Status) error {
	rows, err := r.q.DeadCauses(ctx, db.DeadCausesParams{Shards: r.shards, Most: r.each(causesMost)})
	var n int64
	var first time.Time
	for _, c := range rows {
		s.Dead = append(s.Dead, Cause{r.place(c.Definition, c.Node), c.Code, c.Jobs, c.First.UTC(), c.Last.UTC(), c.RunID, ""})
		n, first = n+c.Jobs, earliest(first, c.First.UTC())
	}
	if n > 0 {
		s.trouble("dead", first, "%s: replay or cancel", counted(n, causesMost, "run has failed and waits for a person", "runs have failed and wait for a person"))
	}
	return err
}

// failing reads what fails and is tried again: no trouble yet.
func (r *Reader) failing(ctx context.Context, s *Status) error {
	rows, err := r.q.FailingCauses(ctx, db.FailingCausesParams{Shards: r.shards, Most: r.each(causesMost)})
	for _, c := range rows {
		f := Failing{Place: r.place(c.Definition, c.Node), Code: c.Code, Count: c.Jobs, First: c.First.UTC(), Next: soon(c.Next), Attempts: int(c.Attempts), Oldest: c.RunID}
		if set, ok := r.setting(c.Definition, f.Step); ok {
			f.Budget = set.Retry.Attempts
			if within := set.Retry.WithinMs; within > 0 && !f.First.IsZero() {
				f.GivesUp = f.First.Add(time.Duration(within) * time.Millisecond)
			}
		}
		s.Failing = append(s.Failing, f)
	}
	return err
}

func (r *Reader) setting(def int64, step string) (plan.Settings, bool) {
	d := r.defs[def]
	if d == nil {
		return plan.Settings{}, false
	}
	set, ok := d.settings[step]
	return set, ok
}

// effects reads what is not settled.
func (r *Reader) effects(ctx context.Context, s *Status) error {
	rows, err := r.q.UnsettledEffects(ctx, db.UnsettledEffectsParams{Shards: r.shards, Most: r.each(causesMost)})
	var people, late int64
	var first, lateSince time.Time
	for _, c := range rows {
		e := Effect{Place: r.place(c.Definition, c.Node), Code: c.Code, Person: c.Person, Count: c.Jobs, First: c.First.UTC(), Last: c.Last.UTC(), Next: soon(c.Next),
			Questions: int(c.Questions), Oldest: c.RunID}
		e.Late = !e.Person && s.At.Sub(e.Next) > lateAfter
		set, _ := r.setting(c.Definition, e.Step)
		if set.Questions != nil && !e.Person {
			e.Budget = set.Questions.Attempts
		}
		e.What = r.question(e, set)
		switch {
		case e.Person:
			people, first = people+e.Count, earliest(first, e.First)
		case e.Late:
			late, lateSince = late+e.Count, earliest(lateSince, e.Next)
		}
		s.Effects = append(s.Effects, e)
	}
	if people > 0 {
		s.trouble("resolve", first, "%s", counted(people, causesMost, "effect waits for a person: did it happen or not?", "effects wait for a person: did they happen or not?"))
	}
	if late > 0 {
		s.trouble("question", lateSince, "%s", counted(late, causesMost, "effect is due to be asked about, and nobody asks", "effects are due to be asked about, and nobody asks"))
	}
	return err
}

// question is what comes next of an effect.
func (r *Reader) question(e Effect, set plan.Settings) string {
	switch {
	case e.Person && set.Effect == plan.Manual:
		return "a person says what became of it: the step is Manual"
	case e.Person && e.Code == "QUESTIONS_EXHAUSTED":
		return "a person says what became of it: all questions were asked in vain"
	case e.Person:
		return "a person says what became of it: there is no look-up that could"
	case e.Late:
		return "its look-up is due, and no worker asks: is one that knows the step alive?"
	}
	return "its look-up asks the other side again"
}

// reasonsMost is of how many causes of each kind the last error is told.
const reasonsMost = 20

// reasons adds what was said last of one run of each cause.
func (r *Reader) reasons(ctx context.Context, s *Status) error {
	at := map[uuid.UUID][]*string{}
	for i := range s.Dead[:min(len(s.Dead), reasonsMost)] {
		at[s.Dead[i].Newest] = append(at[s.Dead[i].Newest], &s.Dead[i].Reason)
	}
	for i := range s.Failing[:min(len(s.Failing), reasonsMost)] {
		at[s.Failing[i].Oldest] = append(at[s.Failing[i].Oldest], &s.Failing[i].Reason)
	}
	for i := range s.Effects[:min(len(s.Effects), reasonsMost)] {
		at[s.Effects[i].Oldest] = append(at[s.Effects[i].Oldest], &s.Effects[i].Reason)
	}
	p := db.LastReasonsParams{Shards: []int16{}, Runs: []uuid.UUID{}}
	for id := range at {
		p.Shards, p.Runs = append(p.Shards, shardOf(id)), append(p.Runs, id)
	}
	rows, err := r.q.LastReasons(ctx, p)
	for _, x := range rows {
		for _, reason := range at[x.RunID] {
			*reason = x.Reason
		}
	}
	return err
}
