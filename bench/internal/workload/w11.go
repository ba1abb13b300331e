package workload

import (
	"context"
	"fmt"
	"time"
)

var w11 = Workload{
	Name:  "W11",
	Title: "one to eight worker processes, 4,000 runs",
	Cases: []Case{{Name: "1 process", N: 1}, {Name: "2 processes", N: 2}, {Name: "4 processes", N: 4}, {Name: "8 processes", N: 8}},
	Workers: map[string]func(context.Context, *Env) error{
		"worker": func(ctx context.Context, e *Env) error {
			s, err := e.open(ctx, e.Slots)
			if err != nil {
				return err
			}
			e.talk.Say("ready")
			e.talk.Hear() // go
			stop, err := s.Work(ctx)
			if err != nil {
				return err
			}
			e.talk.Hear() // stop
			stop()
			return nil
		},
	},
	Measure: func(ctx context.Context, e *Env) error {
		e.Run = e.n(4000)
		s, err := e.open(ctx, e.Slots)
		if err != nil {
			return err
		}
		if err := e.enqueue(ctx, s, e.Run); err != nil {
			return err
		}
		var ps []*Process
		for range e.Case.N {
			p, err := e.spawn(ctx, "worker", nil)
			if err != nil {
				return err
			}
			ps = append(ps, p)
			if _, err := p.Hear(ctx); err != nil {
				return err
			}
		}
		began := time.Now()
		for _, p := range ps {
			if err := p.Say("go"); err != nil {
				return err
			}
		}
		if err := s.Wait(ctx, e.Run); err != nil {
			return fmt.Errorf("waiting for %d runs: %w", e.Run, err)
		}
		took := time.Since(began)
		for _, p := range ps {
			if err := p.Say("stop"); err != nil {
				return err
			}
			if _, err := p.Wait(); err != nil {
				return err
			}
		}
		e.add("steps_per_s", float64(e.Run*e.steps())/took.Seconds())
		e.begun.Store(int64(e.Run * e.steps())) // the bodies ran elsewhere
		return e.verify(ctx, s, e.Run)
	},
}
