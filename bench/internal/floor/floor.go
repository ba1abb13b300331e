package floor

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/bench/internal/system"
	"github.com/pawlworks/pawl/internal/doctor"
	"github.com/pawlworks/pawl/schema"
)

type floor struct {
	o          system.Options
	definition int64
	routes     []int32 // high priority first
	route      int32   // of normal priority
	executed   atomic.Int64
	worker     atomic.Pointer[worker]
}

// New makes the contestant.
func New(o system.Options) (system.System, error) { return &floor{o: o}, nil }

func (f *floor) Setup(ctx context.Context) error {
	c, err := f.o.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer f.o.Pool.Reset() // connections that have the settings
	defer c.Release()
	if err := schema.Migrate(ctx, c.Conn()); err != nil {
		return err
	}
	// As Pawl sets it for each statement: a plan that was made while a table was
	// small must not read all of it when it is large, and planning costs more than one row.
	var name string
	if err := c.QueryRow(ctx, "SELECT current_database()").Scan(&name); err != nil {
		return err
	}
	for _, set := range []string{"enable_seqscan = off", "jit = off", "plan_cache_mode = force_generic_plan"} {
		if _, err := c.Exec(ctx, "ALTER DATABASE "+name+" SET "+set); err != nil && !strings.Contains(err.Error(), "concurrently updated") {
			return err
		}
	}
	graph, err := json.Marshal(map[string]any{"steps": make([]struct{}, f.o.Steps)})
	if err != nil {
		return err
	}
	if err := c.QueryRow(ctx, sqlDefinition, Workflow, graph).Scan(&f.definition); err != nil {
		return err
	}
	if _, err := c.Exec(ctx, sqlRoutes, f.definition); err != nil {
		return err
	}
	rows, err := c.Query(ctx, "SELECT id, priority FROM pawl.route WHERE definition = $1 ORDER BY priority DESC", f.definition)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id int32
		var priority int16
		if err := rows.Scan(&id, &priority); err != nil {
			return err
		}
		if f.routes = append(f.routes, id); priority == 1 {
			f.route = id
		}
	}
	return rows.Err()
}

func (f *floor) Work(ctx context.Context) (func(), error) {
	w := newWorker(f)
	if _, err := f.o.Pool.Exec(ctx, sqlSession, w.owner, f.routes, make([]int32, len(f.routes))); err != nil {
		return nil, err
	}
	w.start()
	f.worker.Store(w)
	return w.stop, nil
}

func (f *floor) Done(ctx context.Context) (n int, err error) {
	err = f.o.Pool.QueryRow(ctx, "SELECT count(*) FROM pawl.run WHERE workflow = $1 AND outcome = 'succeeded'", Workflow).Scan(&n)
	return n, err
}

func (f *floor) Wait(ctx context.Context, n int) error {
	return system.Poll(ctx, f, n, func() (ran, all int64) { return f.executed.Load(), int64(n * f.o.Steps) })
}

// RunOne starts a run by one statement; its end is known in memory.
func (f *floor) RunOne(ctx context.Context) error {
	w := f.worker.Load()
	id := newRunID(0)
	ended := w.await(id)
	if err := f.startOne(ctx, id); err != nil {
		return err
	}
	w.kick()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// StartOne starts a run by one statement.
func (f *floor) StartOne(ctx context.Context) error { return f.startOne(ctx, newRunID(0)) }

func (f *floor) startOne(ctx context.Context, id uuid.UUID) error {
	_, err := f.o.Pool.Exec(ctx, sqlStart, id, Workflow, f.definition, f.o.Payload, f.route)
	return err
}

// Check asks Pawl's doctor, and counts what was recorded.
func (f *floor) Check(ctx context.Context, runs int) error {
	violations, err := doctor.Check(ctx, f.o.Pool)
	if err != nil {
		return err
	}
	if len(violations) > 0 {
		return fmt.Errorf("the doctor found %d violations, such as: %v", len(violations), violations[0])
	}
	return system.CheckHistory(ctx, f.o.Pool, Workflow, runs*f.o.Steps)
}

// Repeated is how many transitions were recorded twice.
func (f *floor) Repeated(ctx context.Context) (int, error) {
	return system.RepeatedTransitions(ctx, f.o.Pool, Workflow)
}

// Table is the workflow's name in Pawl's tables.
func (f *floor) Table() string { return Workflow }

// Ballast is a run's input, as SQL.
func (f *floor) Ballast() string {
	return "'" + strings.ReplaceAll(string(f.o.Payload), "'", "''") + "'"
}
