package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pawlworks/pawl/schema"
	"github.com/pawlworks/pawl/steps"
)

// Work runs steps until ctx ends; then it drains and returns nil. An error
// means that it could not begin: the database was not there, the schema does
// not fit, there is nothing to work on; or that the pool was closed under it. Once
// it works, it lives through the loss of the database and goes on when that is back.
//
// Draining: nothing new is claimed; for up to Config.Drain the steps under way
// are waited for, and their successors left to others; long steps stop at
// their next cursor. Then the context of what still runs is cancelled with
// steps.ErrDrained as its cause and the jobs are handed back, which costs no
// attempt; a LookUp or Manual effect that has not answered by then is uncertain.
//
// Each call is an owner of its own. Two may run at once.
func (e *Engine) Work(ctx context.Context) error {
	if len(e.code) == 0 {
		return errors.New("pawl: Work has no workflows: name them in Config.Workflows")
	}
	if ctx.Err() != nil {
		return nil
	}
	if err := schema.Check(ctx, e.pool); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	var left sync.WaitGroup // sessions that were lost, while their steps still return
	defer left.Wait()
	for first := true; ; first = false {
		lost, err := e.work(ctx, &left)
		switch {
		case err != nil && ctx.Err() != nil: // stopped before it had begun
			return nil
		case err != nil && (first || closedPool(err)):
			return err
		case err != nil:
			e.log.Warn("pawl: opening a new session; trying again", "error", err)
			sleep(ctx, spread(downLatest))
		case !lost:
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// graceToReturn is for how long bodies have the time to return, and hand-backs
// to be written, when the drain's patience is at its end.
const graceToReturn = 2 * time.Second

// work is Work under one session. When that is lost it returns at once: what is
// still under way counts no more, and is left to end by itself.
func (e *Engine) work(ctx context.Context, left *sync.WaitGroup) (lost bool, err error) {
	hard, stop := context.WithCancel(context.Background())
	w := newWorker(e, hard)
	w.soft = ctx
	end := func() { // the writers last
		stop()
		w.code.close()
		w.commits.wg.Wait()
		w.begins.wg.Wait()
		w.reads.wg.Wait()
		w.later.Wait()
	}
	defer func() {
		if !lost {
			end()
		}
	}()
	if err := w.load(ctx); err != nil {
		return false, fmt.Errorf("pawl: reading the definitions: %w", err)
	}
	ids, floors := w.routes()
	if len(ids) == 0 {
		return false, fmt.Errorf("pawl: Work has nothing to do: no step of its workflows is in one of the queues %q", e.config.Queues)
	}
	sent := moments()
	session := e.session()
	session.ID, session.Routes, session.Floors = w.owner, ids, floors
	now, err := e.db.OpenSession(ctx, session)
	if err != nil {
		return false, fmt.Errorf("pawl: opening a session: %w", err)
	}
	w.renewedSession(sent)
	w.readClock(sent, now)
	defer e.health.add(w)()
	defer w.observed()()
	defer w.observedDatabase()()

	// The claimer asks first, then the pulse, which tells which of the others have
	// something to do: were they all to ask at the same time, as many connections
	// would be opened for it, each of which plans its statements anew.
	loops := []*loop{w.keeper, w.pulse, w.recovery, w.reconciler, w.closer, w.maintenance, w.retention}
	w.pulse.Start(hard, pulseAfter)
	w.keeper.Start(hard, keeperIdle)
	w.maintenance.Start(hard, spread(maintainAfter))
	w.retention.Start(hard, retireAfter)
	for _, l := range []*loop{w.recovery, w.reconciler, w.closer} {
		l.Start(hard, loopIdle)
	}
	letGo := e.share.keepLane(e.pool) // before users' code asks for connections
	w.claimer.Start(hard, 0)
	unsubscribe := e.subscribe(w.heard)
	e.log.Debug("pawl: working", "owner", w.owner, "worker", e.config.Name)

	select {
	case <-ctx.Done():
	case <-w.gone:
		lost = true
	}
	w.draining.Store(true)
	w.execs.Go(func() { // the drain waits for it, to its limit
		w.claimer.Stop() // a claim under way is finished
		close(w.stopped)
		if !w.sessionLost.Load() && w.inDoubt.Load() {
			w.handBackLeaked() // if that fails too, the jobs go with the session
		}
	})
	if lost {
		w.loseAll()
		left.Go(func() { w.drain(); unsubscribe(); stopAll(loops); letGo(); end() })
		return true, nil
	}
	clean := w.drain()
	unsubscribe()
	stopAll(loops)
	letGo()
	w.closeSession(clean)
	return false, nil
}

func stopAll(loops []*loop) {
	for _, l := range loops {
		l.Stop()
	}
}

// heard is called for each wake-up.
func (w *worker) heard(kind string) {
	switch kind {
	case wakeWork:
		w.claimer.wake()
	case wakeCancel:
		w.pulse.wake()
	case "":
		w.pulse.wake()
		w.claimer.wake()
	}
}

// drain waits for what is under way, to the limit, and then hands back the
// rest. It returns whether nothing is held any more.
func (w *worker) drain() bool {
	idle := make(chan struct{})
	go func() {
		<-w.stopped // nothing is added any more
		w.execs.Wait()
		close(idle)
	}()
	limit := time.NewTimer(w.e.config.Drain)
	defer limit.Stop()
	select {
	case <-idle:
		return true
	case <-limit.C:
	}
	for _, l := range w.all() {
		l.cancel(steps.ErrDrained)
	}
	grace := time.NewTimer(graceToReturn)
	defer grace.Stop()
	select {
	case <-idle:
		return true
	case <-grace.C:
	}
	w.abandon()
	return false
}

// abandon gives up on bodies that ignore their context. An effect of theirs is
// uncertain from now on; the lease of the others lapses in its time, so that
// nobody runs the step while this process still may.
func (w *worker) abandon() {
	ctx, cancel := context.WithTimeout(w.hard, graceToReturn) // the database may be away
	defer cancel()
	var wg sync.WaitGroup
	for _, l := range w.all() {
		w.log.Warn("pawl: a step ignores that its context has ended; the worker leaves without it", "run_id", l.run, "job", l.job)
		if !l.begun.Load() || !l.settle() {
			continue
		}
		wg.Go(func() {
			c := l.at.unsure(firstQuestion(l.step), steps.Classify(steps.Uncertain(errors.New("the worker stopped before the step returned"))))
			a := w.submitWithin(ctx, c)
			w.report(l.at, l, c, a)
			if a.verdict == verdictDone {
				w.tellOthers(c, a.state)
			}
		})
	}
	wg.Wait()
}

func (w *worker) loseAll() {
	for _, l := range w.all() {
		l.lose()
	}
}

// closeSession: only when nothing is held, since its jobs are taken back then.
func (w *worker) closeSession(clean bool) {
	if !clean || w.sessionLost.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := w.e.db.CloseSession(ctx, w.owner); err != nil {
		w.log.Warn("pawl: closing the session; it lapses by itself", "error", err)
	}
}
