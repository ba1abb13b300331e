package system

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Tabled is a System that keeps its runs in Pawl's tables: Pawl, and the floor.
type Tabled interface {
	System
	// Check fails if the tables hold what can't be, or not one completion for
	// each step of so many runs.
	Check(ctx context.Context, runs int) error
	// Repeated is how many transitions were recorded twice.
	Repeated(ctx context.Context) (int, error)
	// Table is the workflow's name in the tables.
	Table() string
	// Ballast is SQL for a run's input, made from a number i.
	Ballast() string
}

// CheckHistory fails unless there are exactly so many completions.
func CheckHistory(ctx context.Context, pool *pgxpool.Pool, workflow string, want int) error {
	var n, others int
	err := pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE h.event = 'completed'), count(*) FILTER (WHERE h.event <> 'completed')
		  FROM pawl.history h JOIN pawl.run r ON r.shard = h.shard AND r.id = h.run_id WHERE r.workflow = $1`, workflow).Scan(&n, &others)
	if err != nil {
		return err
	}
	if n != want {
		return fmt.Errorf("the history has %d completions, not %d (and %d other transitions)", n, want, others)
	}
	return nil
}

// RepeatedTransitions counts the steps that were completed more than once.
func RepeatedTransitions(ctx context.Context, pool *pgxpool.Pool, workflow string) (n int, err error) {
	err = pool.QueryRow(ctx, `SELECT count(*) FROM (SELECT FROM pawl.history h JOIN pawl.run r ON r.shard = h.shard AND r.id = h.run_id
		 WHERE r.workflow = $1 AND h.event IN ('completed', 'settled') GROUP BY h.run_id, h.path, h.node HAVING count(*) > 1) x`, workflow).Scan(&n)
	return n, err
}

// Poll waits until n runs have succeeded. Bodies tells how many bodies this
// process has run, and must run in all if nobody else works. While it is at it
// Poll asks seldom, and once it is through often, so that asking costs little
// and the end is seen at once.
func Poll(ctx context.Context, s System, n int, bodies func() (ran, all int64)) error {
	for last := (time.Time{}); ; {
		ran, all := bodies()
		pause, every := 20*time.Millisecond, 20*time.Millisecond // others work
		switch {
		case ran >= all:
			pause, every = time.Millisecond, 0
		case ran > 0:
			pause, every = 2*time.Millisecond, 250*time.Millisecond
		}
		if time.Since(last) >= every {
			done, err := s.Done(ctx)
			if err != nil || done >= n {
				return err
			}
			last = time.Now()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}
