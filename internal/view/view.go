// Package view reads what is in a database, for people: plain structs with
// stable names, which the command prints and a page can show. It knows nothing
// of the user's code; names and settings of steps are read beside the graphs.
//
// Every statement visits so many rows at most, or is bounded by what is under
// way, whatever the history holds.
package view

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/plan"
)

// Beginner is a pool or a connection.
type Beginner interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// Reader reads one database, in one snapshot if it comes from Read.
type Reader struct {
	q      *db.Queries
	shards []int16
	keep   string
	now    time.Time // of the database's clock, when Read began
	defs   map[int64]*definition
}

// On is a reader on queries that somebody else has limited.
func On(q *db.Queries, shards []int16) *Reader {
	return &Reader{q: q, shards: shards, defs: map[int64]*definition{}}
}

// Plans of any values: the statements are written so that one is good, and they
// are tested so.
const settings = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), pg_catalog.set_config('statement_timeout', '10s', true), " +
	"pg_catalog.set_config('enable_seqscan', 'off', true), pg_catalog.set_config('jit', 'off', true), pg_catalog.set_config('plan_cache_mode', $1, true)"

const (
	anyValues   = "force_generic_plan"
	theseValues = "force_custom_plan"
)

// Read calls fn with a reader of one snapshot. It changes nothing.
func Read(ctx context.Context, pool Beginner, fn func(*Reader) error) error {
	return inTransaction(ctx, pool, pgx.RepeatableRead, anyValues, func(q *db.Queries) error {
		r := On(q, nil)
		m, err := q.Meta(ctx)
		if err != nil {
			return fmt.Errorf("pawl: reading the schema's settings: %w", err)
		}
		for s := range m.Shards {
			r.shards = append(r.shards, s)
		}
		r.now, r.keep = m.Now, m.Keep
		return fn(r)
	})
}

func inTransaction(ctx context.Context, pool Beginner, level pgx.TxIsoLevel, plans string, fn func(*db.Queries) error) error {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("pawl: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = tx.Rollback(ctx) // nothing was written
	}()
	if _, err := tx.Exec(ctx, settings, plans); err != nil {
		return fmt.Errorf("pawl: %w", err)
	}
	return fn(db.New(tx))
}

// definition is what is stored of a workflow's graph: the names of its steps,
// and their settings.
type definition struct {
	id       int64
	workflow string
	steps    []string
	settings map[string]plan.Settings
	active   bool
	at       time.Time
}

// load reads definitions that are not known yet; all, if none is named.
func (r *Reader) load(ctx context.Context, ids ...int64) error {
	var missing []int64
	for _, id := range ids {
		if r.defs[id] == nil {
			missing = append(missing, id)
		}
	}
	if len(ids) > 0 && len(missing) == 0 {
		return nil
	}
	if missing == nil {
		missing = []int64{}
	}
	rows, err := r.q.DefinitionsToShow(ctx, missing)
	if err != nil {
		return fmt.Errorf("pawl: reading the definitions: %w", err)
	}
	for _, d := range rows {
		var g struct {
			Steps []struct {
				Name string `json:"name"`
			} `json:"steps"`
		}
		def := &definition{id: d.ID, workflow: d.Workflow, settings: plan.ReadSettings([]byte(d.Settings)), active: d.Active, at: d.ActiveAt}
		if json.Unmarshal(d.Graph, &g) == nil { // a newer release's is not understood: its steps have numbers
			for _, s := range g.Steps {
				def.steps = append(def.steps, s.Name)
			}
		}
		r.defs[d.ID] = def
	}
	return nil
}

// Place is where a job stands.
type Place struct {
	Workflow string `json:"workflow"`
	Step     string `json:"step,omitempty"`
	Owner    string `json:"owner,omitempty"` // who must look: steps.Owner
}

// place names a node of a definition that was loaded.
func (r *Reader) place(def int64, node int32) Place {
	d := r.defs[def]
	if d == nil {
		return Place{Step: fmt.Sprint("number ", node)}
	}
	p := Place{Workflow: d.workflow, Step: d.step(node)}
	p.Owner = d.settings[p.Step].Owner
	return p
}

func (d *definition) step(node int32) string {
	switch n := int(node); {
	case n >= 0 && n < len(d.steps):
		return d.steps[n]
	case len(d.steps) == 0:
		return fmt.Sprint("number ", node)
	}
	return "result" // the place behind the last step, where the result is made
}

// moment is a time that may be missing, or never come.
func moment(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return soon(*t)
}

// soon is a due time in UTC; zero for one that never comes.
func soon(t time.Time) time.Time {
	if t = t.UTC(); t.Year() >= 9999 {
		return time.Time{}
	}
	return t
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Now is the database's clock when Read began.
func (r *Reader) Now() time.Time { return r.now.UTC() }
