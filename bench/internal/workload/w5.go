package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pawlworks/pawl/bench/internal/meter"
)

var w5 = Workload{
	Name:  "W5",
	Title: "thirty idle seconds",
	Cases: []Case{{Name: "1 process", N: 1, Peers: true, NoFloor: true}, {Name: "20 processes", N: 20, Peers: true, NoFloor: true}},
	Limit: time.Minute,
	Workers: map[string]func(context.Context, *Env) error{
		"idle": func(ctx context.Context, e *Env) error {
			s, err := e.open(ctx, fewSlots)
			if err != nil {
				return err
			}
			if _, err := s.Work(ctx); err != nil {
				return err
			}
			e.talk.Say("ready")
			for {
				if e.talk.Hear() == "stop" {
					return nil // the process ends without ceremony
				}
				b, err := json.Marshal(e.wire.Traffic())
				if err != nil {
					return err
				}
				e.talk.Say(string(b))
			}
		},
	},
	Measure: func(ctx context.Context, e *Env) error {
		if err := e.trackCalls(ctx); err != nil {
			return err
		}
		var ps []*Process
		for range e.Case.N { // one after another, since the first makes the schema
			p, err := e.spawn(ctx, "idle", nil)
			if err != nil {
				return err
			}
			ps = append(ps, p)
			if _, err := p.Hear(ctx); err != nil {
				return err
			}
		}
		if err := sleep(ctx, e.d(10*time.Second, time.Second)); err != nil { // what follows a start is over
			return err
		}
		return e.idle(ctx, ps)
	},
}

func (e *Env) idle(ctx context.Context, ps []*Process) error {
	calls, err := e.countCalls(ctx)
	if err != nil {
		return err
	}
	before, err := traffic(ctx, ps)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := sleep(ctx, e.d(30*time.Second, time.Second)); err != nil {
		return err
	}
	after, err := traffic(ctx, ps)
	if err != nil {
		return err
	}
	minutes := time.Since(began).Minutes() * float64(len(ps))
	if t := after.Minus(before); t.RoundTrips > 0 || e.tables() { // else it has connections of its own
		e.add("round_trips_per_min", float64(t.RoundTrips)/minutes)
		e.add("executions_per_min", float64(t.Statements)/minutes)
	}
	if calls != nil {
		c, err := calls()
		if err != nil {
			return err
		}
		e.add("statements_per_min", float64(c)/minutes)
		most, err := e.mostCalled(ctx, 12)
		if err != nil {
			return err
		}
		for _, text := range most {
			e.note("idle, %s: %s", e.Case.Name, text)
		}
	} else {
		e.note("pg_stat_statements is not there: round trips only")
	}
	for _, p := range ps {
		if err := p.Say("stop"); err != nil {
			return err
		}
		if _, err := p.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// traffic sums up what the processes have said to the server.
func traffic(ctx context.Context, ps []*Process) (sum meter.Traffic, err error) {
	for _, p := range ps {
		if err := p.Say("traffic"); err != nil {
			return sum, err
		}
		line, err := p.Hear(ctx)
		if err != nil {
			return sum, err
		}
		var t meter.Traffic
		if err := json.Unmarshal([]byte(line), &t); err != nil {
			return sum, fmt.Errorf("%q: %w", line, err)
		}
		sum.RoundTrips += t.RoundTrips
		sum.Statements += t.Statements
	}
	return sum, nil
}
