package engine

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/pawlworks/pawl/internal/db"
)

// group gathers items from many goroutines into batches, without a timer: a
// batch is what has come while the ones before it were being written. At rest
// that is one item, at once; under load batches grow by themselves.
type group[T any] struct {
	in    chan T
	size  func(T) int // bytes
	flush func(context.Context, *db.Queries, []T)
	wg    sync.WaitGroup
}

const (
	groupItems  = 500                   // a batch's most items,
	groupBytes  = 4 << 20               // and bytes
	keptFor     = 50 * time.Millisecond // a connection, without anything to write
	groupYields = 3                     // in vain, before it is written
)

// newGroup starts writers that flush until ctx ends. What is in flight then,
// flush has to answer; what is put in later nobody takes: see put.
func newGroup[T any](ctx context.Context, e *Engine, writers int, size func(T) int, flush func(context.Context, *db.Queries, []T)) *group[T] {
	g := &group[T]{in: make(chan T, groupItems), size: size, flush: flush}
	for range writers {
		g.wg.Go(func() { g.write(ctx, e) })
	}
	return g
}

// put hands an item over, or returns false if ctx has ended.
func (g *group[T]) put(ctx context.Context, item T) bool {
	select {
	case g.in <- item:
		return true
	case <-ctx.Done():
		return false
	}
}

func (g *group[T]) write(ctx context.Context, e *Engine) {
	k := &kept{share: e.share}
	defer k.release()
	q := db.New(conn{pool: e.pool, kept: k})
	idle := time.NewTimer(keptFor)
	defer idle.Stop()
	for {
		var batch []T
		select {
		case <-ctx.Done():
			return
		case <-idle.C:
			k.release()
			continue
		case item := <-g.in:
			batch = g.more(append(batch, item))
		}
		g.flush(ctx, q, batch)
		idle.Reset(keptFor)
	}
}

// more takes what is there, and what those bring who are ready to run: at rest
// nobody is, and nothing is waited for.
func (g *group[T]) more(batch []T) []T {
	bytes := g.size(batch[0])
	for yields := 0; len(batch) < groupItems && bytes < groupBytes; {
		select {
		case item := <-g.in:
			batch = append(batch, item)
			bytes += g.size(item)
			yields = 0
		default:
			if yields++; yields > groupYields {
				return batch
			}
			runtime.Gosched()
		}
	}
	return batch
}
