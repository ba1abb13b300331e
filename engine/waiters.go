package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/db"
)

// waiters is everybody in this process who waits for a run to end.
//
// Invariants: one goroutine asks for all of them, one query at a time, so that
// ten thousand need no more connections than one; it runs only while somebody
// waits; a waiter is told only what has been committed. A wake-up makes it ask
// at once, else it asks by itself, ever more seldom, at least once a second.
type waiters struct {
	e     *Engine
	mu    sync.Mutex
	runs  map[uuid.UUID]*waitedFor
	kick  chan struct{}
	fresh bool // somebody came since the last question
}

// waitedFor is a run and those who wait for it.
type waitedFor struct {
	chans map[chan ending]bool
	since time.Time
	seen  bool // it is there
}

// ending is how a run has ended.
type ending struct {
	output []byte
	err    error
}

const (
	waitersAsk     = 1000 // ids a question
	waitersSoonest = 10 * time.Millisecond
	waitersLatest  = time.Second
	waitersNobody  = 30 * time.Second // a run that is not there by then was never started
)

func (w *waiters) wait(ctx context.Context, id uuid.UUID) (ending, error) {
	if err := ctx.Err(); err != nil {
		return ending{}, err
	}
	ch := make(chan ending, 1)
	w.mu.Lock()
	if w.runs == nil {
		w.runs = map[uuid.UUID]*waitedFor{}
		w.kick = make(chan struct{}, 1)
		go w.loop(w.kick)
	}
	if w.runs[id] == nil {
		w.runs[id] = &waitedFor{chans: map[chan ending]bool{}, since: time.Now()}
	}
	w.runs[id].chans[ch] = true
	w.fresh = true
	w.poke()
	w.mu.Unlock()
	select {
	case end := <-ch:
		return end, end.broken()
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		if r := w.runs[id]; r != nil {
			if delete(r.chans, ch); len(r.chans) == 0 {
				delete(w.runs, id)
				w.poke() // the loop may have nobody left
			}
		}
		return ending{}, ctx.Err()
	}
}

// waitFailed is an ending that is not the run's but the question's.
type waitFailed struct{ error }

func (end ending) broken() error {
	if f, ok := end.err.(waitFailed); ok {
		return f.error
	}
	return nil
}

func (w *waiters) poke() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

func (w *waiters) loop(kick chan struct{}) {
	unsubscribe := w.e.subscribe(func(kind string) {
		if kind == wakeEnded || kind == "" {
			select {
			case kick <- struct{}{}:
			default:
			}
		}
	})
	defer unsubscribe()
	pause := waitersSoonest
	for {
		w.mu.Lock()
		if len(w.runs) == 0 {
			w.runs = nil
			w.mu.Unlock()
			return
		}
		ids := slices.Collect(maps.Keys(w.runs))
		if w.fresh {
			pause = waitersSoonest
		}
		w.fresh = false
		var unseen []uuid.UUID
		for id, r := range w.runs {
			if !r.seen && time.Since(r.since) > waitersNobody {
				unseen = append(unseen, id)
			}
		}
		w.mu.Unlock()

		began := time.Now()
		w.askAll(ids, w.ask)
		w.askAll(unseen, w.look)
		// A burst of wake-ups is one question; a dear question is asked less often.
		time.Sleep(min(max(time.Since(began), 2*time.Millisecond), 100*time.Millisecond))
		select {
		case <-kick:
		case <-time.After(pause):
		}
		pause = min(pause*3/2, waitersLatest)
	}
}

// askAll asks about runs by shard, so many at a time.
func (w *waiters) askAll(ids []uuid.UUID, ask func(int16, []uuid.UUID) error) {
	byShard := map[int16][]uuid.UUID{}
	for _, id := range ids {
		byShard[shardIn(id)] = append(byShard[shardIn(id)], id)
	}
	for shard, ids := range byShard {
		for chunk := range slices.Chunk(ids, waitersAsk) {
			if err := ask(shard, chunk); err != nil {
				w.failed(err)
				return
			}
		}
	}
}

// ask tells those whose runs have ended.
func (w *waiters) ask(shard int16, ids []uuid.UUID) error {
	ctx := context.Background()
	rows, err := w.e.db.Outcomes(ctx, db.OutcomesParams{Shard: shard, Ids: ids})
	if err != nil {
		return err
	}
	ends, err := w.e.endings(ctx, shard, rows)
	w.tell(ends)
	return err
}

// look tells those whose runs are not there, after all this time: the
// transaction that started them was rolled back.
func (w *waiters) look(shard int16, ids []uuid.UUID) error {
	there, err := w.e.db.Existing(context.Background(), db.ExistingParams{Shard: shard, Ids: ids})
	if err != nil {
		return err
	}
	w.mu.Lock()
	for _, id := range there {
		if r := w.runs[id]; r != nil {
			r.seen = true
		}
	}
	w.mu.Unlock()
	ends := map[uuid.UUID]ending{}
	for _, id := range ids {
		if !slices.Contains(there, id) {
			ends[id] = ending{err: fmt.Errorf("%w: run %s", ErrNotFound, id)}
		}
	}
	w.tell(ends)
	return nil
}

func (w *waiters) tell(ends map[uuid.UUID]ending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, end := range ends {
		if r := w.runs[id]; r != nil {
			for ch := range r.chans {
				ch <- end
			}
			delete(w.runs, id)
		}
	}
	if len(w.runs) == 0 { // the loop has nobody left
		w.poke()
	}
}

// failed tells everybody when waiting longer is pointless: the pool is closed.
// Any other trouble passes, and the callers have contexts.
func (w *waiters) failed(err error) {
	if !closedPool(err) {
		w.e.log.Debug("pawl: asking for the ends of runs", "error", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, r := range w.runs {
		for ch := range r.chans {
			ch <- ending{err: waitFailed{err}}
		}
		delete(w.runs, id)
	}
}

// endings reads what the runs that have ended have to say.
func (e *Engine) endings(ctx context.Context, shard int16, rows []db.OutcomesRow) (ends map[uuid.UUID]ending, err error) {
	ends = map[uuid.UUID]ending{}
	var need db.OutputsParams
	need.Shard = shard
	for _, r := range rows {
		switch {
		case *r.Outcome == "failed":
			f, e2 := e.failure(ctx, shard, r.ID, r.Workflow)
			if e2 != nil { // the others are told
				err = e2
				continue
			}
			ends[r.ID] = ending{err: f}
		case *r.Outcome != "succeeded":
			ends[r.ID] = ending{err: fmt.Errorf("%w: run %s of %q", ErrCancelled, r.ID, r.Workflow)}
		case r.Output != nil:
			ends[r.ID] = ending{output: r.Output}
		default:
			need.Runs = append(need.Runs, r.ID)
			need.Jobs = append(need.Jobs, *r.ResultJob)
			need.Tokens = append(need.Tokens, *r.ResultToken)
		}
	}
	for i := 0; i < len(need.Runs); i += valuesAtOnce {
		to := min(i+valuesAtOnce, len(need.Runs))
		outs, err := e.db.Outputs(ctx, db.OutputsParams{Shard: shard, Runs: need.Runs[i:to], Jobs: need.Jobs[i:to], Tokens: need.Tokens[i:to]})
		if err != nil {
			return ends, err
		}
		for _, o := range outs {
			ends[o.RunID] = ending{output: o.Output}
		}
	}
	for i, id := range need.Runs {
		if _, ok := ends[id]; !ok {
			ends[id] = ending{err: fmt.Errorf("pawl: run %s has succeeded, but its result, row %d:%d of its history, is not there any more", id, need.Jobs[i], need.Tokens[i])}
		}
	}
	return ends, err
}

// failure is why a run has failed.
func (e *Engine) failure(ctx context.Context, shard int16, id uuid.UUID, workflow string) (error, error) {
	dead, err := e.db.LastFailure(ctx, db.LastFailureParams{Shard: shard, RunID: id})
	if err != nil {
		return nil, err
	}
	f := &FailedError{Run: id.String(), Workflow: workflow}
	if len(dead) > 0 {
		d := dead[0]
		run, err := e.db.GetRun(ctx, db.GetRunParams{Shard: shard, ID: id})
		if err != nil {
			return nil, err
		}
		f.Step, f.Attempt, f.Code, f.Reason = fmt.Sprint("number ", d.Node), int(d.Attempt), text(d.Code), text(d.Reason)
		if g, err := decodeGraph(run.Graph); err == nil { // a newer release's may not be understood
			f.Step = g.name(int(d.Node))
			f.Owner = ownerOf(run.Settings, f.Step)
		}
	}
	return f, nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// closedPool tells whether nothing can come of the pool any more. (The error
// is of the library underneath pgxpool, which does not export it.)
func closedPool(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if err.Error() == "closed pool" {
			return true
		}
	}
	return false
}
