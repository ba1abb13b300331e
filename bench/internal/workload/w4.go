package workload

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawlworks/pawl/bench/internal/meter"
)

var w4 = Workload{
	Name:  "W4",
	Title: "one long run",
	Cases: []Case{{Name: "1,000 steps", Steps: 1000, Peers: true}, {Name: "10,000 steps", Steps: 10000}},
	Limit: 3 * time.Minute,
	Measure: func(ctx context.Context, e *Env) error {
		e.Case.Steps = max(300, e.n(e.Case.Steps))
		s, err := e.open(ctx, fewSlots)
		if err != nil {
			return err
		}
		return e.oneLongRun(ctx, s, func() (func(), error) { return func() {}, nil })
	},
}

// mileage is when each step of one run began.
type mileage struct {
	mu sync.Mutex
	at []time.Time
}

func (e *Env) mileage() *mileage {
	m := &mileage{at: make([]time.Time, e.steps())}
	e.each(func(_ string, step int) {
		m.mu.Lock()
		m.at[step] = time.Now()
		m.mu.Unlock()
	})
	return m
}

// ends is the time a step of the first so many, of the last, and of all, in
// milliseconds. The first ten don't count: they find caches and plans cold.
func (m *mileage) ends(most int) (early, late, all float64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := len(m.at) - 1
	for _, t := range m.at {
		if t.IsZero() {
			return 0, 0, 0, errors.New("a step was not seen")
		}
	}
	const warm = 10
	per := func(from, to int) float64 { return meter.Ms(m.at[to].Sub(m.at[from])) / float64(to-from) }
	return per(warm, warm+most), per(last-most, last), per(0, last), nil
}
