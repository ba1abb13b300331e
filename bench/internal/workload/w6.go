package workload

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/pawlworks/pawl/bench/internal/system"
)

var w6 = Workload{
	Name:  "W6",
	Title: "kill -9 in the middle of 500 runs, session and lease of 5 s, another worker started",
	Cases: []Case{{N: 500, Peers: true, NoFloor: true}},
	Limit: 3 * time.Minute,
	Workers: map[string]func(context.Context, *Env) error{
		"worker": func(ctx context.Context, e *Env) error {
			journal, err := os.OpenFile(e.Journal, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			half := int64(e.Run * e.steps() / 2)
			e.each(func(run string, step int) {
				// One write: the kernel has it, whatever becomes of us.
				if _, err := journal.WriteString(fmt.Sprintf("%s %d\n", run, step)); err != nil {
					panic(err)
				}
				if e.begun.Load() == half {
					e.talk.Say("half")
				}
				time.Sleep(5 * time.Millisecond) // so that steps are under way at any moment
			})
			s, err := e.open(ctx, fewSlots)
			if err != nil {
				return err
			}
			stop, err := s.Work(ctx)
			if err != nil {
				return err
			}
			for said := e.talk.Hear(); said != "stop"; said = e.talk.Hear() { // or it is killed
				if err := s.Enqueue(ctx, e.Run); err != nil {
					return err
				}
			}
			stop()
			return nil
		},
	},
	Measure: func(ctx context.Context, e *Env) error {
		f, err := os.CreateTemp("", "pawl-bench-journal")
		if err != nil {
			return err
		}
		f.Close()
		defer os.Remove(f.Name())
		e.Journal, e.Lease, e.Run = f.Name(), e.d(5*time.Second, 4*time.Second), e.n(e.Case.N)
		s, err := e.open(ctx, fewSlots)
		if err != nil {
			return err
		}
		if err := e.enqueue(ctx, s, e.Run); err != nil {
			return err
		}
		return e.killHalfWay(ctx, s)
	},
}

func (e *Env) killHalfWay(ctx context.Context, s system.System) error {
	first, err := e.spawn(ctx, "worker", nil)
	if err != nil {
		return err
	}
	if e.contestant.Direct {
		if err := first.Say("enqueue"); err != nil {
			return err
		}
	}
	if _, err := first.Hear(ctx); err != nil {
		return err
	}
	if err := first.Kill(); err != nil {
		return err
	}
	began := time.Now()
	_, _ = first.Wait() // it was killed
	atKill, _, err := journal(e.Journal)
	if err != nil {
		return err
	}
	second, err := e.spawn(ctx, "worker", nil)
	if err != nil {
		return err
	}
	all := true
	wait, cancel := context.WithTimeout(ctx, e.d(180*time.Second, 20*time.Second))
	defer cancel()
	for {
		done, err := s.Done(ctx)
		if err != nil {
			return err
		}
		if done >= e.Run {
			e.add("all_done_s", time.Since(began).Seconds())
			break
		}
		if sleep(wait, 10*time.Millisecond) != nil {
			all = false
			break
		}
	}
	done, err := s.Done(ctx)
	if err != nil {
		return err
	}
	e.add("lost_runs", float64(e.Run-done))
	if !all {
		e.note("not done after %v: %d of %d runs stand", time.Since(began).Round(time.Second), e.Run-done, e.Run)
	} else if err := second.Say("stop"); err != nil {
		return err
	} else if _, err := second.Wait(); err != nil {
		return err
	}
	begun, repeated, err := journal(e.Journal)
	if err != nil {
		return err
	}
	if all && begun-repeated < e.Run*e.steps() {
		return fmt.Errorf("all runs have succeeded, and only %d of %d bodies ran", begun-repeated, e.Run*e.steps())
	}
	e.add("killed_at_share", float64(atKill)/float64(e.Run*e.steps()))
	e.add("repeated_bodies", float64(repeated))
	if t, ok := s.(system.Tabled); ok {
		n, err := t.Repeated(ctx)
		if err != nil {
			return err
		}
		e.add("repeated_transitions", float64(n))
	}
	if !all {
		_ = second.Kill()
		_, _ = second.Wait()
	}
	return nil
}

// journal counts the bodies that began, and those that had begun before.
func journal(name string) (begun, repeated int, err error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, 0, err
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		begun++
		if seen[line] {
			repeated++
		}
		seen[line] = true
	}
	return begun, repeated, nil
}
