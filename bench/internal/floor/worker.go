package floor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// position is where a run stands, leased to this process.
type position struct {
	job   int64
	run   uuid.UUID
	token int64
	node  int32
}

type worker struct {
	f     *floor
	owner uuid.UUID
	ctx   context.Context
	end   context.CancelFunc
	wg    sync.WaitGroup
	wake  chan struct{} // the claimer

	mu       sync.Mutex
	some     sync.Cond  // finished is not empty, or it is over
	finished []position // whose step is done and not durable yet
	awaited  map[uuid.UUID]chan struct{}
	held     atomic.Int64 // positions leased to this process
	more     atomic.Bool  // the last claim found as much as it asked for
	draining atomic.Bool
	over     bool
}

func newWorker(f *floor) *worker {
	w := &worker{f: f, owner: uuid.New(), wake: make(chan struct{}, 1), awaited: map[uuid.UUID]chan struct{}{}}
	w.some.L = &w.mu
	w.ctx, w.end = context.WithCancel(context.Background())
	return w
}

func (w *worker) start() {
	w.wg.Go(w.claim)
	w.wg.Go(w.recover)
	for range writers {
		w.wg.Go(w.write)
	}
}

// stop hands on what is held: each run stands at its next step, due.
func (w *worker) stop() {
	w.draining.Store(true)
	for w.held.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	w.end()
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.some.Broadcast()
	w.wg.Wait()
}

func (w *worker) kick() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *worker) await(run uuid.UUID) chan struct{} {
	ch := make(chan struct{})
	w.mu.Lock()
	w.awaited[run] = ch
	w.mu.Unlock()
	return ch
}

// execute runs the step at a position, and leaves it to the writers.
func (w *worker) execute(ps []position) {
	for _, p := range ps {
		w.f.executed.Add(1)
		w.f.o.OnStep(p.run.String(), int(p.node))
	}
	w.mu.Lock()
	w.finished = append(w.finished, ps...)
	w.mu.Unlock()
	w.some.Signal()
}

func (w *worker) claim() {
	for w.ctx.Err() == nil {
		free := int64(w.f.o.Slots) - w.held.Load()
		if free > 0 && !w.draining.Load() {
			got, err := w.claimSome(min(int(free), claimMost))
			if err != nil {
				fail("claiming", err)
			}
			w.more.Store(got == min(int(free), claimMost))
			if w.more.Load() {
				continue
			}
		}
		select {
		case <-w.wake:
		case <-time.After(100 * time.Millisecond):
		case <-w.ctx.Done():
		}
	}
}

func (w *worker) claimSome(most int) (int, error) {
	rows, err := w.f.o.Pool.Query(context.Background(), sqlClaim, w.owner, w.f.routes, most)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var ps []position
	for rows.Next() {
		var p position
		var input []byte
		if err := rows.Scan(&p.job, &p.run, &p.token, &p.node, &input); err != nil {
			return 0, err
		}
		ps = append(ps, p)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	w.held.Add(int64(len(ps)))
	w.execute(ps)
	return len(ps), nil
}

// recover takes expired leases back.
func (w *worker) recover() {
	for w.ctx.Err() == nil {
		var n int
		if err := w.f.o.Pool.QueryRow(context.Background(), sqlRecover, rand.Int64(), batchMost).Scan(&n); err != nil {
			fail("recovering", err)
		}
		if n > 0 {
			w.kick()
		}
		if n < batchMost {
			select {
			case <-time.After(time.Second):
			case <-w.ctx.Done():
			}
		}
	}
}

// fail gives up: the floor handles no errors.
func fail(what string, err error) {
	fmt.Fprintln(os.Stderr, "floor:", what+":", err)
	os.Exit(1)
}
