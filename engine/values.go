package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/db"
)

// Values that a step needs and memory does not have are read from the history:
// what many runs ask for at a time, as after a restart, is one statement.

var errNoValue = errors.New("a value that the step needs is not recorded")

// value reads what is recorded at a node: from memory at a hand-over, else by
// key, else (an older graph, newer code) by place.
func (w *worker) value(ctx context.Context, g *grant, node int) ([]byte, error) {
	if v, ok := g.values[node]; ok {
		return v, nil
	}
	if r, ok := g.refs.find(node); ok {
		return w.recorded(ctx, g, r)
	}
	if node >= 0 {
		rows, err := w.e.db.OutputOfNode(ctx, db.OutputOfNodeParams{Shard: g.shard, RunID: g.run, Node: int32(node)})
		if err != nil {
			return nil, err
		}
		if len(rows) == 1 && text(rows[0].Encoding) == encodingJSON {
			g.values[node] = rows[0].Output
			return rows[0].Output, nil
		}
	}
	return nil, fmt.Errorf("%w: of %q, for %q", errNoValue, g.bind.graph.name(node), g.name())
}

func (w *worker) recorded(ctx context.Context, g *grant, r ref) ([]byte, error) {
	q := &reading{shard: g.shard, place: place{g.run, r.job, r.token}, done: make(chan read, 1)}
	if !w.reads.put(ctx, q) {
		return nil, context.Cause(ctx)
	}
	var got read
	select {
	case got = <-q.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if got.err != nil {
		return nil, got.err
	}
	if got.encoding != encodingJSON {
		return nil, fmt.Errorf("%w: row %d:%d of the run's history, for %q", errNoValue, r.job, r.token, g.name())
	}
	if r.what >= 0 {
		g.values[r.what] = got.value
	}
	return got.value, nil
}

// reading asks for the value that is recorded at a place of the history.
type reading struct {
	shard int16
	place place
	done  chan read // has room for the one answer
}

// valuesAtOnce bounds what one statement brings: each may be as large as MaxPayload.
const valuesAtOnce = 64

type place struct {
	run        uuid.UUID
	job, token int64
}

type read struct {
	encoding string // empty: there is none
	value    []byte
	err      error
}

// readAll answers all that have come, one statement a shard.
func (w *worker) readAll(ctx context.Context, q *db.Queries, qs []*reading) {
	slices.SortStableFunc(qs, func(a, b *reading) int { return cmp.Compare(a.shard, b.shard) })
	for len(qs) > 0 {
		n := 1
		for n < len(qs) && qs[n].shard == qs[0].shard {
			n++
		}
		readShard(ctx, q, qs[:n])
		qs = qs[n:]
	}
}

func readShard(ctx context.Context, queries *db.Queries, qs []*reading) {
	p := db.OutputsParams{Shard: qs[0].shard}
	for _, q := range qs {
		p.Runs, p.Jobs, p.Tokens = append(p.Runs, q.place.run), append(p.Jobs, q.place.job), append(p.Tokens, q.place.token)
	}
	found := map[place]read{}
	rows, err := queries.Outputs(ctx, p)
	for _, r := range rows {
		found[place{r.RunID, r.Job, r.Token}] = read{encoding: text(r.Encoding), value: r.Output}
	}
	for _, q := range qs {
		r := found[q.place]
		r.err = err
		q.done <- r
	}
}
