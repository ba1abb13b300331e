package workload

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/bench/internal/system"
)

const (
	underLoad = "W1's load"
	longRun   = "one 10,000-step run"
)

var w9 = Workload{
	Name:  "W9",
	Title: "a snapshot held open for three minutes",
	Cases: []Case{{Name: underLoad}, {Name: longRun, Steps: 10000}},
	Limit: 10 * time.Minute,
	Measure: func(ctx context.Context, e *Env) error {
		if e.Case.Name == longRun {
			return e.longRunUnderSnapshot(ctx)
		}
		s, err := e.open(ctx, e.Slots)
		if err != nil {
			return err
		}
		l, err := e.startLoad(ctx, s)
		if err != nil {
			return err
		}
		window := e.d(20*time.Second, 500*time.Millisecond)
		if err := sleep(ctx, e.d(10*time.Second, 200*time.Millisecond)); err != nil {
			return err
		}
		free, err := l.rate(ctx, window)
		if err != nil {
			return err
		}
		release, err := e.holdSnapshot(ctx)
		if err != nil {
			return err
		}
		if err := sleep(ctx, e.d(180*time.Second, time.Second)-window); err != nil {
			return err
		}
		held, err := l.rate(ctx, window) // the last seconds of the three minutes
		if err != nil {
			return err
		}
		release()
		if err := l.end(); err != nil {
			return err
		}
		e.add("steps_per_s", held)
		e.add("free_steps_per_s", free)
		e.add("held_by_free", held/free)
		return nil
	},
}

// holdSnapshot holds one as a long report would: a transaction at repeatable read, idle.
func (e *Env) holdSnapshot(ctx context.Context) (release func(), err error) {
	conn, err := pgx.Connect(ctx, e.URL)
	if err != nil {
		return nil, err
	}
	for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM pawl.run"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	return func() { _ = conn.Close(context.WithoutCancel(ctx)) }, nil
}

func (e *Env) longRunUnderSnapshot(ctx context.Context) error {
	e.Case.Steps = max(300, e.n(e.Case.Steps))
	s, err := e.open(ctx, fewSlots)
	if err != nil {
		return err
	}
	return e.oneLongRun(ctx, s, func() (func(), error) { return e.holdSnapshot(ctx) })
}

// oneLongRun measures one run, with something held meanwhile.
func (e *Env) oneLongRun(ctx context.Context, s system.System, hold func() (func(), error)) error {
	stop, err := s.Work(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := e.checkpoint(ctx); err != nil {
		return err
	}
	release, err := hold()
	if err != nil {
		return err
	}
	defer release()
	m := e.mileage()
	if err := s.RunOne(ctx); err != nil {
		return err
	}
	early, late, all, err := m.ends(100)
	if err != nil {
		return err
	}
	e.add("first_100_ms_per_step", early)
	e.add("last_100_ms_per_step", late)
	e.add("last_100_by_first_100", late/early)
	e.add("run_ms_per_step", all)
	return nil
}
