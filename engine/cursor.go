package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/telemetry"
	"github.com/pawlworks/pawl/steps"
)

// cursor is the engine's side of a long step's cursor.
//
// Invariants: nothing in memory moves before the commit is known; a write whose
// answer was lost is looked up under the lease by the job's cursor_seq, which
// only the holder raises; a write renews the lease, since it is progress.
type cursor struct {
	w     *worker
	l     *lease
	g     *grant
	value []byte
	doubt error // a write was given up without an answer: it may still arrive
}

func (w *worker) cursor(l *lease, g *grant) (*cursor, error) {
	c := &cursor{w: w, l: l, g: g}
	rows, err := w.e.db.ReadCursor(l.ctx, db.ReadCursorParams{Shard: g.shard, Job: g.job})
	if err != nil {
		return nil, err
	}
	if len(rows) == 1 && rows[0].Value != nil {
		if rows[0].Encoding != encodingJSON {
			return nil, steps.Permanent("DECODE", fmt.Errorf("the cursor of step %q is encoded as %q", g.name(), rows[0].Encoding))
		}
		c.value = rows[0].Value
		l.shown.Store(&[2]int64{rows[0].Done, rows[0].Total})
	}
	return c, nil
}

func (c *cursor) At() []byte { return c.value }

func (c *cursor) Progress(done, total int64) { c.l.shown.Store(&[2]int64{done, total}) }

func (c *cursor) params(v []byte) db.SaveCursorParams {
	p := db.SaveCursorParams{Shard: c.g.shard, ID: c.g.job, LeaseMs: ms(c.l.length), Owner: c.w.owner, Token: c.g.token, Seq: c.g.cursorSeq,
		Encoding: encodingJSON, Value: v}
	if s := c.l.shown.Load(); s != nil {
		p.Done, p.Total = s[0], s[1]
	}
	return p
}

// refuse: of an effect that may have happened the engine's own error says nothing.
func (c *cursor) refuse(code string, err error) error {
	if c.l.begun.Load() {
		return &steps.Error{Class: steps.ClassUncertain, Code: code, Err: err}
	}
	return steps.Permanent(code, err)
}

func (c *cursor) check(v []byte) error {
	if err := context.Cause(c.l.ctx); err != nil {
		return err
	}
	if c.doubt != nil { // no later write could be told from that one
		return fmt.Errorf("pawl: what became of the last write of the cursor of step %q is not known: return, and the next attempt goes on from what was saved: %w",
			c.g.name(), c.doubt)
	}
	if most := c.w.e.config.MaxPayload; len(v) > most {
		return c.refuse("TOO_LARGE", fmt.Errorf("%w: the cursor of step %q has %d bytes, more than %d", ErrTooLarge, c.g.name(), len(v), most))
	}
	return nil
}

// Commit saves the position: durable when it returns nil.
func (c *cursor) Commit(ctx context.Context, v []byte) error {
	if err := c.check(v); err != nil {
		return err
	}
	for pause := busySoonest; ; pause = min(2*pause, downLatest) {
		sent := moments()
		rows, err := c.w.e.db.SaveCursor(ctx, c.params(v))
		if err == nil && len(rows) == 1 {
			return c.moved(v, sent, rows[0].ExpiresAt.Sub(*rows[0].Now))
		}
		if err != nil && refused(err) {
			return c.refuse("BAD_VALUE", fmt.Errorf("PostgreSQL refuses the cursor of step %q: %w", c.g.name(), err))
		}
		switch wrote, e := c.wrote(); {
		case e != nil && !errors.Is(e, errAgain) && !errors.Is(e, errDown):
			return e
		case wrote:
			return c.moved(v, sent, 0)
		}
		if err := c.wait(ctx, pause); err != nil {
			c.doubt = err
			return err
		}
	}
}

func (c *cursor) wait(ctx context.Context, d time.Duration) error {
	if sleep(c.l.ctx, spread(d)) && ctx.Err() == nil {
		return nil
	}
	if err := context.Cause(c.l.ctx); err != nil {
		return err
	}
	return ctx.Err()
}

var (
	errAgain   = errors.New("nothing was written")
	errDown    = errors.New("the database does not answer")
	errWritten = errors.New("an earlier try may have written it")
)

// wrote reads, under the lease, whether the last write took place. errAgain:
// it did not and may be tried again. errDown: the database did not say.
func (c *cursor) wrote() (bool, error) {
	ctx, cancel := context.WithTimeout(c.w.hard, backstop)
	defer cancel()
	j, err := c.w.e.db.ReadJob(ctx, db.ReadJobParams{Shard: c.g.shard, ID: c.g.job})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, c.lost()
	case err != nil:
		return false, errDown
	case j.State != stateRunning || j.Owner == nil || *j.Owner != c.w.owner || j.Token != c.g.token || !j.ExpiresAt.After(j.Now):
		return false, c.lost()
	case j.CursorSeq == c.g.cursorSeq+1:
		return true, nil
	}
	return false, errAgain
}

func (c *cursor) lost() error {
	c.l.lose()
	return steps.ErrLeaseLost
}

// moved is called when the write is known to be durable.
func (c *cursor) moved(v []byte, sent moment, term time.Duration) error {
	c.value = v
	c.g.cursorSeq++
	c.g.transients, c.g.unknowns, c.g.failedAt = 0, 0, nil
	c.l.progress.Add(1)
	c.l.event(telemetry.EventCursor)
	if term > 0 {
		c.l.extend(sent, term)
	}
	if c.w.draining.Load() && c.l.interruptible() { // the position is safe: a good moment to stop
		return steps.ErrDrained
	}
	return nil
}

// CommitTx runs fn and saves the position in one transaction: both are durable
// when it returns nil, neither is when it returns an error that is fn's own.
func (c *cursor) CommitTx(ctx context.Context, v []byte, fn func(pgx.Tx) error) error {
	if err := c.check(v); err != nil {
		return err
	}
	for !c.w.permit(ctx, max(c.l.heartbeat/2, time.Millisecond)) {
		if err := cause(c.l, ctx); err != nil {
			return err
		}
		c.l.progress.Add(1) // it is not the step that is slow
		c.w.keeper.wake()
	}
	defer c.w.permitted()
	return c.w.inTx(ctx, c.l, func(ctx context.Context, tx pgx.Tx) error {
		return <-aside(func() error { return fn(tx) })
	}, func(ctx context.Context, tx pgx.Tx) (func() error, error) {
		q := db.New(fenced{tx, []statement{stated(func(q *db.Queries) { q.LockJob(ctx, db.LockJobParams{Shard: c.g.shard, ID: c.g.job}) })}})
		sent := moments()
		rows, err := q.SaveCursor(ctx, c.params(v))
		if err != nil {
			return nil, err
		}
		if len(rows) != 1 { // lost, or an earlier try's COMMIT took place after all
			return nil, errWritten
		}
		return func() error { return c.moved(v, sent, rows[0].ExpiresAt.Sub(*rows[0].Now)) }, nil
	}, func() (func() error, error) {
		wrote, err := c.wrote()
		if !wrote {
			return nil, err
		}
		return func() error { return c.moved(v, moments(), 0) }, nil
	})
}
