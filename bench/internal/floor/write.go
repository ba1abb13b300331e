package floor

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// write is the natural group commit: a batch is what has finished while the
// ones before it were being written.
func (w *worker) write() {
	for {
		w.mu.Lock()
		for len(w.finished) == 0 && !w.over {
			w.some.Wait()
		}
		if len(w.finished) == 0 {
			w.mu.Unlock()
			return
		}
		n := min(len(w.finished), batchMost)
		batch := slices.Clone(w.finished[:n])
		w.finished = append(w.finished[:0], w.finished[n:]...)
		w.mu.Unlock()
		slices.SortFunc(batch, func(a, b position) int { return cmp.Compare(a.job, b.job) })
		w.commit(batch)
	}
}

// commit writes a batch and runs the successors' steps.
func (w *worker) commit(batch []position) {
	keep := !w.draining.Load()
	done := w.transition(batch, keep)
	next := batch[:0:0]
	var busy []position
	for _, p := range batch {
		switch {
		case !done[p.job]:
			busy = append(busy, p) // a claimer holds the row; see Pawl's transition
		case int(p.node) == w.f.o.Steps-1:
			w.ended(p.run)
		case keep:
			next = append(next, position{p.job, p.run, p.token + 1, p.node + 1})
		}
	}
	if len(busy) > 0 {
		time.AfterFunc(2*time.Millisecond, func() {
			w.mu.Lock()
			w.finished = append(w.finished, busy...)
			w.mu.Unlock()
			w.some.Signal()
		})
	}
	if w.held.Add(-int64(len(batch) - len(busy) - len(next))); w.more.Load() && len(next)+len(busy) < len(batch) {
		w.kick()
	}
	if len(next) > 0 {
		w.execute(next)
	}
}

func (w *worker) ended(run uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ch := w.awaited[run]; ch != nil {
		close(ch)
		delete(w.awaited, run)
	}
}

func (w *worker) transition(batch []position, keep bool) map[int64]bool {
	n := len(batch)
	ids, runs, tokens := make([]int64, n), make([]uuid.UUID, n), make([]int64, n)
	requests, outputs, last, refs := make([]int64, n), make([][]byte, n), make([]bool, n), make([]string, n)
	for i, p := range batch {
		ids[i], runs[i], tokens[i], requests[i], outputs[i] = p.job, p.run, p.token, rand.Int64(), w.f.o.Payload
		last[i] = int(p.node) == w.f.o.Steps-1
		refs[i] = strconv.Itoa(int(p.node)) + ":" + strconv.FormatInt(p.job, 10) + ":" + strconv.FormatInt(p.token+1, 10)
	}
	rows, err := w.f.o.Pool.Query(context.Background(), sqlTransition, w.owner, keep, ids, runs, tokens, requests, outputs, last, refs)
	if err != nil {
		fail("writing", err)
	}
	defer rows.Close()
	done := make(map[int64]bool, n)
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			fail("writing", err)
		}
		done[id] = true
	}
	if err := rows.Err(); err != nil {
		fail("writing", err)
	}
	return done
}
