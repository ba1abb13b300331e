package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/pawlworks/pawl/bench/internal/meter"
	"github.com/pawlworks/pawl/bench/internal/system"
)

// costs are readings before a stretch of work.
type costs struct {
	began          time.Time
	client, server time.Duration
}

func (e *Env) readCosts() (c costs, err error) {
	if c.server, err = meter.ServerCPU(e.Postmaster); err != nil {
		return c, err
	}
	c.client, err = meter.ClientCPU()
	c.began = time.Now()
	return c, err
}

// addCosts reports throughput and what it cost since the reading.
func (e *Env) addCosts(c costs, took time.Duration, steps int) error {
	client, err1 := meter.ClientCPU()
	server, err2 := meter.ServerCPU(e.Postmaster)
	peak, err3 := meter.PeakMemory()
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	e.add("steps_per_s", float64(steps)/took.Seconds())
	e.add("client_cpu_us_per_step", float64((client-c.client).Nanoseconds())/1000/float64(steps))
	e.add("server_cpu_us_per_step", float64((server-c.server).Nanoseconds())/1000/float64(steps))
	e.add("client_peak_memory_mib", float64(peak)/(1<<20))
	return nil
}

// enqueue starts n runs before the work begins. A checkpoint comes first, so
// that the pages that the work will touch are new since then: what full-page
// images there would be do not drown what the steps write.
func (e *Env) enqueue(ctx context.Context, s system.System, n int) error {
	if err := e.checkpoint(ctx); err != nil {
		return err
	}
	if e.contestant.Direct {
		return nil
	}
	return s.Enqueue(ctx, n)
}

// drain works until n runs are done, and returns the time that took. After is
// called when they are, before the work stops.
func (e *Env) drain(ctx context.Context, s system.System, n int, after func(time.Duration) error) error {
	profiled, err := e.profile()
	if err != nil {
		return err
	}
	defer profiled()
	began := time.Now()
	stop, err := s.Work(ctx)
	if err != nil {
		return err
	}
	if e.contestant.Direct {
		if err := s.Enqueue(ctx, n); err != nil {
			return err
		}
	}
	if err := s.Wait(ctx, n); err != nil {
		done, _ := s.Done(context.WithoutCancel(ctx))
		return fmt.Errorf("after %v %d of %d runs had succeeded: %w", time.Since(began).Round(time.Second), done, n, err)
	}
	took := time.Since(began)
	profiled()
	if err := after(took); err != nil {
		return err
	}
	stop()
	return e.verify(ctx, s, n)
}

// profile writes what the client's processors do, if that is asked for, until
// it is told to end; and what has been allocated until then.
func (e *Env) profile() (end func(), err error) {
	if e.Profile == "" {
		return func() {}, nil
	}
	f, err := os.Create(e.Profile)
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() {
		pprof.StopCPUProfile()
		_ = f.Close()
		if f, err := os.Create(e.Profile + ".allocs"); err == nil {
			_ = pprof.Lookup("allocs").WriteTo(f, 0)
			_ = f.Close()
		}
	}), pprof.StartCPUProfile(f)
}

// verify fails unless n runs have succeeded, with all that Pawl's tables must
// hold if they are its own, and each body has run.
func (e *Env) verify(ctx context.Context, s system.System, n int) error {
	done, err := s.Done(ctx)
	if err != nil {
		return err
	}
	if done != n {
		return fmt.Errorf("%d runs have succeeded, not %d", done, n)
	}
	bodies := int(e.begun.Load())
	if bodies < n*e.steps() {
		return fmt.Errorf("%d bodies have run, fewer than %d", bodies, n*e.steps())
	}
	if bodies > n*e.steps() {
		e.note("%d bodies ran more than once", bodies-n*e.steps())
	}
	if t, ok := s.(system.Tabled); ok {
		return t.Check(ctx, n)
	}
	return nil
}
