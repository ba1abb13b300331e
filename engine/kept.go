package engine

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// kept is a connection that a writer keeps from statement to statement while
// there is more to write: the same few serve all load then, and not each
// connection of the pool has to plan the same statements. A pool lends only so
// many that way, and a small one none: the others need theirs too.
type kept struct {
	share *share
	conn  *pgxpool.Conn
	since time.Time
}

const (
	minPoolKept = 8
	keptLongest = time.Minute // then the pool may see whether it is too old
)

func (k *kept) acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, func(), error) {
	if k.conn == nil {
		c, err := acquireWithin(ctx, pool, acquireWait)
		if err != nil {
			return nil, nil, err
		}
		select {
		case k.share.keeps <- struct{}{}:
			k.conn, k.since = c, time.Now()
		default:
			return c, c.Release, nil
		}
	}
	return k.conn, func() {
		if k.conn.Conn().IsClosed() || time.Since(k.since) > keptLongest {
			k.release()
		}
	}, nil
}

func (k *kept) release() {
	if k.conn != nil {
		k.conn.Release()
		k.conn = nil
		<-k.share.keeps
	}
}
