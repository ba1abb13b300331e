package steps

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/internal/plan"
)

// Cursor is the position of a long step, saved durably. Its value is whatever
// the next attempt needs to carry on: an offset, counters, the last key. The
// zero Cursor lives in memory only, at the zero position.
//
// Positions are kept encoded, so At returns what the next attempt would see
// and shares nothing with what was committed. Commits must not overlap.
type Cursor[C any] struct {
	back plan.Cursor // nil: memory only

	committing sync.Mutex
	mu         sync.Mutex
	at         []byte // decodes into C; nil: the zero position
	broken     error  // why NewCursor's value does not encode
}

var errOverlap = errors.New("cursor: commits overlap; make one at a time")

// NewCursor returns a cursor at v for a step's test: it lives in memory only,
// and CommitTx calls its function with a nil transaction.
func NewCursor[C any](v C) *Cursor[C] {
	c := &Cursor[C]{}
	c.at, c.broken = c.encode(v)
	return c
}

// openCursor is what a body gets. A stored position that C can't hold is a
// permanent error: starting over could repeat what was done.
func openCursor[C any](back plan.Cursor, step string) (*Cursor[C], error) {
	c := &Cursor[C]{back: back}
	if back == nil {
		return c, nil
	}
	if c.at = back.At(); c.at == nil {
		return c, nil
	}
	if _, err := decode[C](c.at, fmt.Sprintf("the cursor of step %q", step)); err != nil {
		return nil, err
	}
	return c, nil
}

// At returns the last position committed, zero at first.
func (c *Cursor[C]) At() C {
	c.mu.Lock()
	at := c.at
	c.mu.Unlock()
	if at == nil {
		var zero C
		return zero
	}
	v, _ := plan.Decode[C](at) // it did before
	return v
}

// Commit saves the position v, durably when it returns nil, and renews the
// lease. On an error At stays and the body should return it: the lease may be
// lost. If ctx ended before the database answered, the write may still arrive:
// the cursor takes no more then, and the next attempt goes on from what is saved.
func (c *Cursor[C]) Commit(ctx context.Context, v C) error {
	return c.move(ctx, v, func(b []byte) error {
		if c.back == nil {
			return nil
		}
		return c.back.Commit(ctx, b)
	})
}

// CommitTx saves the position v and renews the lease in one transaction with
// what fn writes: all of it commits or nothing. fn must not end the
// transaction; after a deadlock or a serialization failure it runs again. On an error
// nothing has moved and the body should return it.
func (c *Cursor[C]) CommitTx(ctx context.Context, v C, fn func(pgx.Tx) error) error {
	if fn == nil {
		return Permanent("NIL_FUNC", errors.New("cursor: CommitTx of a nil function"))
	}
	return c.move(ctx, v, func(b []byte) error {
		if c.back == nil {
			return fn(nil)
		}
		return c.back.CommitTx(ctx, b, fn)
	})
}

// move encodes v, has it saved, and only then moves in memory.
func (c *Cursor[C]) move(ctx context.Context, v C, save func([]byte) error) error {
	if c.broken != nil {
		return c.broken
	}
	b, err := c.encode(v)
	if err != nil {
		return err
	}
	if !c.committing.TryLock() {
		return errOverlap
	}
	defer c.committing.Unlock()
	if c.back == nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := save(b); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = b
	return nil
}

// encode refuses a value that would not come back.
func (c *Cursor[C]) encode(v C) ([]byte, error) {
	b, err := encode(v, "cursor")
	if err != nil {
		return nil, err
	}
	if _, err := decode[C](b, "cursor"); err != nil {
		return nil, err
	}
	return b, nil
}

// Progress tells how far the step is, for show: it does not renew the lease.
func (c *Cursor[C]) Progress(done, total int64) {
	if c.back != nil {
		c.back.Progress(done, total)
	}
}
