package view

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/db"
)

// Run is all about a run.
type Run struct {
	Item
	Next         string    `json:"next"`             // what happens next, or who must do what
	NextAt       time.Time `json:"next_at,omitzero"` // and when
	Generation   int32     `json:"generation"`       // the how many-th start of its key
	Definition   int64     `json:"definition"`
	CancelledBy  string    `json:"cancelled_by,omitempty"`
	CancelReason string    `json:"cancel_reason,omitempty"`
	TraceParent  string    `json:"traceparent,omitempty"`
	InputSize    int       `json:"input_bytes"`
	Input        Payload   `json:"input,omitempty"`
	ResultSize   int       `json:"result_bytes,omitempty"`
	Result       Payload   `json:"result,omitempty"`
	Jobs         []Job     `json:"jobs"`
	Timeline     []Event   `json:"timeline"`
	Late         []Late    `json:"late_results"` // came after their lease was lost, and changed nothing
	Acts         []Act     `json:"acts"`         // of people on the whole run
}

// Late is a result that came after its lease was lost.
type Late struct {
	At      time.Time `json:"at"`
	Step    string    `json:"step"`
	Attempt int       `json:"attempt"`
	Worker  string    `json:"worker,omitempty"`
	Class   string    `json:"class,omitempty"` // empty: an output
	Code    string    `json:"code,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Size    int       `json:"output_bytes,omitempty"`
	Output  Payload   `json:"output,omitempty"`
}

// Act is what a person did.
type Act struct {
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Act    string    `json:"act"`
	Reason string    `json:"reason"`
}

// Payload is a user's value: JSON, or else told as {"not_json": …}.
type Payload []byte

// MarshalJSON gives the value as it is.
func (p Payload) MarshalJSON() ([]byte, error) {
	if json.Valid(p) {
		return p, nil
	}
	quoted := strconv.Quote(string(p))
	return json.Marshal(map[string]string{"not_json": quoted[1 : len(quoted)-1]})
}

// UnmarshalJSON takes a value as it is.
func (p *Payload) UnmarshalJSON(b []byte) error {
	*p = bytes.Clone(b)
	return nil
}

// ErrNotFound: there is no such run.
var ErrNotFound = errors.New("pawl: not found")

// Find returns the runs that a text names: an id, or a key, which may be one of
// several workflows.
func (r *Reader) Find(ctx context.Context, name, workflow string) (ids []uuid.UUID, err error) {
	if id, err := uuid.Parse(name); err == nil {
		items, err := r.some(ctx, []uuid.UUID{id})
		if err != nil || len(items) > 0 {
			return []uuid.UUID{id}, err
		}
	}
	keys, err := r.q.LookAtKey(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("pawl: looking for the key: %w", err)
	}
	for _, k := range keys {
		if workflow == "" || k.Workflow == workflow {
			ids = append(ids, k.ID)
		}
	}
	return ids, nil
}

// some is List of these runs.
func (r *Reader) some(ctx context.Context, ids []uuid.UUID) ([]Item, error) {
	s := newSearch(Filter{Limit: len(ids)})
	var found []db.ListRunsRow
	_, err := s.page(ctx, r, func(context.Context, *Reader, *search, int) ([]uuid.UUID, uuid.UUID, error) {
		return ids, uuid.Nil, nil
	}, len(ids), &found)
	if err != nil {
		return nil, err
	}
	return r.items(ctx, found)
}

// Show reads all about a run; payloads only if they are asked for.
func (r *Reader) Show(ctx context.Context, id uuid.UUID, payloads bool) (Run, error) {
	items, err := r.some(ctx, []uuid.UUID{id})
	if err != nil {
		return Run{}, err
	}
	if len(items) == 0 {
		return Run{}, fmt.Errorf("%w: run %s", ErrNotFound, id)
	}
	v := Run{Item: items[0], Late: []Late{}, Acts: []Act{}}
	for _, read := range []func(context.Context, *Run, bool) error{r.row, r.jobs, r.timeline, r.late, r.acts} {
		if err := read(ctx, &v, payloads); err != nil {
			return v, fmt.Errorf("pawl: reading run %s: %w", id, err)
		}
	}
	r.next(&v)
	return v, nil
}

func shardOf(id uuid.UUID) int16 { return int16(id[6]&0x0f)<<8 | int16(id[7]) }

func (r *Reader) row(ctx context.Context, v *Run, payloads bool) error {
	g, err := r.q.GetRun(ctx, db.GetRunParams{Shard: shardOf(v.ID), ID: v.ID})
	if err != nil {
		return err
	}
	v.Generation, v.Definition, v.CancelledBy, v.CancelReason, v.TraceParent = g.Generation, g.Definition, text(g.CancelledBy), text(g.CancelReason), g.Traceparent
	if v.InputSize = len(g.Input); payloads {
		v.Input = g.Input
	}
	if g.ResultToken != nil {
		out, err := r.q.ResultToShow(ctx, db.ResultToShowParams{Payloads: payloads, Shard: shardOf(v.ID), ID: v.ID})
		if err != nil {
			return err
		}
		v.ResultSize, v.Result = int(out.Size), out.Output
	}
	return r.load(ctx, v.Definition)
}

func (r *Reader) late(ctx context.Context, v *Run, payloads bool) error {
	rows, err := r.q.EvidenceToShow(ctx, db.EvidenceToShowParams{Payloads: payloads, Shard: shardOf(v.ID), RunID: v.ID})
	for _, e := range rows {
		v.Late = append(v.Late, Late{At: e.CameAt.UTC(), Step: r.defs[v.Definition].step(e.Node), Attempt: int(e.Attempt), Worker: text(e.Worker), Class: text(e.Class),
			Code: text(e.Code), Reason: text(e.Reason), Size: max(int(e.Size), 0), Output: e.Output})
	}
	return err
}

func (r *Reader) acts(ctx context.Context, v *Run, _ bool) error {
	rows, err := r.q.ActsToShow(ctx, v.ID)
	for _, a := range rows {
		v.Acts = append(v.Acts, Act{a.ActedAt.UTC(), a.Actor, a.Act, a.Reason})
	}
	return err
}

func keyText(key []byte) string { return hex.EncodeToString(key) }
