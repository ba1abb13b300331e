package view

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/db"
)

// Filter says which runs List returns: those that fit all that is set.
type Filter struct {
	Workflow, Key string
	Tags          []string // all of them
	States        []string // one of them; stranded adds those that are
	Step, Code    string   // where a live or failed run stands, and the last error there
	Since, Until  time.Time
	Before        uuid.UUID // only older runs; Nil: the newest first
	Limit         int
}

// Item is a run in a list.
type Item struct {
	ID uuid.UUID `json:"id"`
	Place
	Key       string    `json:"key,omitempty"`
	State     string    `json:"state"`
	Code      string    `json:"code,omitempty"`     // of the last error there
	Stranded  bool      `json:"stranded,omitempty"` // due, and no live worker takes it
	DueAt     time.Time `json:"due_at,omitzero"`
	Priority  int16     `json:"priority"`
	Tags      []string  `json:"tags,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
}

// lookMost is how many runs or jobs one statement looks at, at most.
const lookMost = 20_000

// List returns runs, newest first.
func (r *Reader) List(ctx context.Context, f Filter) ([]Item, error) {
	s := newSearch(f)
	if err := s.byStep(ctx, r); err != nil {
		return nil, err
	}
	looks, err := s.ways(ctx, r)
	if err != nil {
		return nil, err
	}
	var found []db.ListRunsRow
	for _, look := range looks {
		// Pages double, so that what is found soon costs little.
		s.before, found = s.newest, nil
		for most := 2 * f.Limit; len(found) < f.Limit; most = min(4*most, lookMost) {
			floor, err := s.page(ctx, r, look, min(most, lookMost), &found)
			if err != nil {
				return nil, fmt.Errorf("pawl: listing runs: %w", err)
			}
			if floor == uuid.Nil {
				break
			}
			s.before = floor
		}
		if len(found) >= f.Limit {
			break
		}
	}
	return r.items(ctx, found[:min(len(found), f.Limit)])
}

func (r *Reader) items(ctx context.Context, found []db.ListRunsRow) ([]Item, error) {
	var defs []int64
	for _, x := range found {
		defs = append(defs, x.Definition)
	}
	if len(defs) > 0 {
		if err := r.load(ctx, defs...); err != nil {
			return nil, err
		}
	}
	items := make([]Item, 0, len(found))
	for _, x := range found {
		i := Item{ID: x.ID, Place: Place{Workflow: x.Workflow}, Key: text(x.Key), State: text(x.State), Code: text(x.Code), DueAt: moment(x.DueAt), Stranded: x.Stranded != nil && *x.Stranded, Priority: x.Priority, Tags: x.Tags,
			CreatedAt: x.CreatedAt.UTC(), EndedAt: moment(x.EndedAt)}
		if x.StepNode != nil {
			i.Place = r.place(x.Definition, *x.StepNode)
		}
		items = append(items, i)
	}
	return items, nil
}

// search is a filter as statements take it.
type search struct {
	f              Filter
	p              db.ListRunsParams
	outcomes       []string // what a run's row may say; none: anything
	first          uuid.UUID
	newest, before uuid.UUID
}

func newSearch(f Filter) *search {
	s := &search{f: f, newest: uuid.Max, p: db.ListRunsParams{Workflow: f.Workflow, Key: f.Key, Tags: f.Tags, States: f.States, Code: f.Code, Since: f.Since, Until: f.Until,
		Definitions: []int64{}, Nodes: []int32{}}}
	if f.Tags == nil {
		s.p.Tags = []string{}
	}
	if f.States == nil {
		s.p.States = []string{}
	}
	if !f.Since.IsZero() {
		s.first = firstID(f.Since)
	}
	if f.Until.IsZero() {
		s.p.Until = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	} else {
		s.newest = firstID(f.Until.Add(2 * time.Millisecond))
	}
	if f.Before != uuid.Nil && bytes.Compare(f.Before[:], s.newest[:]) < 0 {
		s.newest = f.Before
	}
	for _, state := range f.States {
		if slices.Contains(ended, state) {
			s.outcomes = append(s.outcomes, state)
		} else if !slices.Contains(s.outcomes, "lives") {
			s.outcomes = append(s.outcomes, "lives")
		}
	}
	if s.outcomes == nil {
		s.outcomes = []string{}
	}
	return s
}

var ended = []string{"succeeded", "failed", "undone", "cancelled"}

// firstID is the lowest id that a run of this moment has; one millisecond
// earlier, since SQL rounds and this cuts.
func firstID(t time.Time) (id uuid.UUID) {
	ms := max(t.UnixMilli()-1, 0)
	for i := range 6 {
		id[5-i] = byte(ms >> (8 * i))
	}
	return id
}

// byStep turns the step's name into places of graphs.
func (s *search) byStep(ctx context.Context, r *Reader) error {
	if s.f.Step == "" {
		return nil
	}
	s.p.ByStep = true
	if err := r.load(ctx); err != nil {
		return err
	}
	for id, d := range r.defs {
		for n := range len(d.steps) + 1 {
			if d.step(int32(n)) == s.f.Step {
				s.p.Definitions, s.p.Nodes = append(s.p.Definitions, id), append(s.p.Nodes, int32(n))
			}
		}
	}
	return nil
}
