package workload

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawlworks/pawl/bench/internal/meter"
	"github.com/pawlworks/pawl/bench/internal/server"
)

// fewSlots is Pawl's default, for workloads whose question is not throughput.
const fewSlots = 100

var w2 = Workload{
	Name:  "W2",
	Title: "one run of 5 steps at a time on an idle system",
	Cases: []Case{{Steps: 5, N: 300, Peers: true}},
	Limit: 2 * time.Minute,
	Measure: func(ctx context.Context, e *Env) error {
		s, err := e.open(ctx, fewSlots)
		if err != nil {
			return err
		}
		stop, err := s.Work(ctx)
		if err != nil {
			return err
		}
		defer stop()
		l := &latencies{}
		e.each(func(_ string, step int) { l.stepBegan(step) })
		var commits meter.Times
		for range 3 { // connections, plans, caches
			if err := l.run(ctx, s.RunOne); err != nil {
				return err
			}
		}
		l.reset()
		// A slow contestant is given up after a while: its figures are of fewer runs.
		n, patience := e.n(e.Case.N), e.d(60*time.Second, 2*time.Second)
		if e.Quick {
			n, patience = min(n, 120), e.d(5*time.Second, 2*time.Second)
		}
		until := time.Now().Add(patience)
		for ; n > 0 && time.Now().Before(until); n-- {
			// Idle for a moment, so that what follows the last run is over.
			if err := sleep(ctx, 20*time.Millisecond); err != nil {
				return err
			}
			if err := server.Commits(ctx, e.admin.Exec, 1, &commits); err != nil {
				return err
			}
			if err := sleep(ctx, 20*time.Millisecond); err != nil {
				return err
			}
			if err := l.run(ctx, s.RunOne); err != nil {
				return err
			}
		}
		l.tell(e)
		e.addTimes("commit", &commits)
		e.add("step_to_step_by_commit", l.step.Quantile(0.5)/commits.Quantile(0.5))
		e.add("samples", float64(l.result.Len()))
		return nil
	},
}

// latencies are of runs one after another.
type latencies struct {
	mu                  sync.Mutex
	started, last       time.Time
	seen                int
	first, step, result meter.Times
}

func (l *latencies) stepBegan(step int) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if step == 0 {
		l.first.Add(now.Sub(l.started))
	} else {
		l.step.Add(now.Sub(l.last))
	}
	l.last = now
	l.seen++
}

func (l *latencies) run(ctx context.Context, one func(context.Context) error) error {
	l.mu.Lock()
	l.started = time.Now()
	l.seen = 0
	began := l.started
	l.mu.Unlock()
	if err := one(ctx); err != nil {
		return err
	}
	l.result.Add(time.Since(began))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == 0 {
		return errors.New("a run ended and no step of it was seen")
	}
	return nil
}

func (l *latencies) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first, l.step, l.result = meter.Times{}, meter.Times{}, meter.Times{}
}

func (l *latencies) tell(e *Env) {
	e.addTimes("start_to_first_step", &l.first)
	e.addTimes("step_to_step", &l.step)
	e.addTimes("start_to_result", &l.result)
}

// addTimes reports p50, and p99 where there are enough to tell.
func (e *Env) addTimes(name string, t *meter.Times) {
	if t.Len() > 0 {
		e.add(name+"_p50_ms", t.Quantile(0.5))
	}
	if t.Len() >= 100 {
		e.add(name+"_p99_ms", t.Quantile(0.99))
	}
}
