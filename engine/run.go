package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/plan"
	"github.com/pawlworks/pawl/steps"
)

// Run is a handle to one durable execution.
type Run[O any] struct {
	ID      string // a UUIDv7
	Existed bool   // the key had started it before

	e        *Engine
	id       uuid.UUID
	workflow string
}

// Handle returns the handle of a run whose id is known. ErrNotFound if there
// is no such run, an error that names both if it is another workflow's.
func Handle[I, O any](ctx context.Context, e *Engine, w steps.Workflow[I, O], id string) (Run[O], error) {
	u, err := e.parse(id)
	if err != nil {
		return Run[O]{}, err
	}
	workflow, err := e.db.RunExists(ctx, db.RunExistsParams{Shard: shardIn(u), ID: u})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Run[O]{}, fmt.Errorf("%w: run %s", ErrNotFound, id)
	case err != nil:
		return Run[O]{}, fmt.Errorf("pawl: run %s: %w", id, err)
	case workflow != w.Name():
		return Run[O]{}, fmt.Errorf("pawl: run %s is of workflow %q, not %q", id, workflow, w.Name())
	}
	return Run[O]{ID: id, Existed: true, e: e, id: u, workflow: workflow}, nil
}

// Find returns the newest run that the key has started. ErrNotFound if none.
func Find[I, O any](ctx context.Context, e *Engine, w steps.Workflow[I, O], key string) (Run[O], error) {
	if err := badText("key", key, 512); err != nil {
		return Run[O]{}, err
	}
	k, err := e.db.FindKey(ctx, db.FindKeyParams{Workflow: w.Name(), Key: key})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Run[O]{}, fmt.Errorf("%w: no run of workflow %q has the key %q", ErrNotFound, w.Name(), key)
	case err != nil:
		return Run[O]{}, fmt.Errorf("pawl: finding the run of workflow %q with the key %q: %w", w.Name(), key, err)
	}
	return Run[O]{ID: k.RunID.String(), Existed: true, e: e, id: k.RunID, workflow: w.Name()}, nil
}

// Wait returns the run's output when it has ended: at once, if it has. The
// error is a *FailedError that names the dead step, ErrCancelled, or ctx's;
// ErrNotFound when the run has not been there for half a minute: the
// transaction that was to start it was rolled back.
// Any number of callers may wait; together they use one query at a time.
func (r Run[O]) Wait(ctx context.Context) (O, error) {
	var zero O
	if r.e == nil {
		return zero, errors.New("pawl: Wait on a zero Run: get one from Start, Find or Handle")
	}
	end, err := r.e.waiters.wait(ctx, r.id)
	if err != nil {
		return zero, fmt.Errorf("pawl: waiting for run %s of %q: %w", r.ID, r.workflow, err)
	}
	if end.err != nil {
		return zero, end.err
	}
	out, err := plan.Decode[O](end.output)
	if err != nil {
		return zero, fmt.Errorf("pawl: the output of run %s of %q: %w", r.ID, r.workflow, err)
	}
	return out, nil
}

func (e *Engine) parse(id string) (uuid.UUID, error) {
	u, err := uuid.Parse(id)
	if err != nil || int(shardIn(u)) >= len(e.shards) {
		return uuid.UUID{}, fmt.Errorf("%w: %q is not the id of a run here", ErrNotFound, clean(id, 100))
	}
	return u, nil
}
