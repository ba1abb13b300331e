package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// part is one example: a worker process does it, and is killed in the middle.
type part struct {
	name     string
	killAt   float64                    // share of the work that is done by then
	ripe     func(context.Context) bool // and what else must hold; nil: nothing
	text     func(done, total int64) string
	progress func(context.Context) (done, total int64, err error)
}

// run has worker processes do the part: another one whenever one was killed,
// by us or by somebody who wanted to see.
func (d *demo) run(ctx context.Context, p part) error {
	d.measure(p.name, p.text)
	spare := false // it is done for the most part: not killed again
	if done, total, err := p.progress(ctx); err == nil && total > 0 {
		d.meter.Show(done, total)
		spare = p.passed(done, total)
	}
	for {
		w, err := d.startWorker(p.name)
		if err != nil {
			return err
		}
		d.say("%s: worker process %d works.", p.name, w.pid())
		err = d.watch(ctx, p, w, &spare)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.Is(err, errKilled) {
			return err
		}
		d.say("%s: worker process %d was killed with SIGKILL, in the middle of %s.", p.name, w.pid(), d.underWay(ctx))
		d.say("%s: nobody is told; its session lapses in two seconds, and another takes its work back.", p.name)
	}
}

func (p part) passed(done, total int64) bool { return float64(done) >= p.killAt*float64(total) }

// watch shows progress until the worker has ended, and kills it at its time.
// The worker tells only the database how far it is, so that is looked at.
func (d *demo) watch(ctx context.Context, p part, w *worker, spare *bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			w.drain()
			<-w.ended
			return ctx.Err()
		case <-w.ended:
			if w.err == nil {
				if done, total, err := p.progress(ctx); err == nil {
					d.meter.Show(done, total)
				}
				d.meter.Break()
			}
			return w.err
		case <-tick.C:
			done, total, err := p.progress(ctx)
			if err != nil || total == 0 {
				continue // not there yet; if the database is gone, the worker will say so
			}
			d.meter.Show(done, total)
			if !*spare && p.passed(done, total) && (p.ripe == nil || p.ripe(ctx)) {
				*spare = true
				w.kill()
			}
		}
	}
}

// underWay tells what the database holds of a worker that is no more.
func (d *demo) underWay(ctx context.Context) string {
	running, begun, err := d.running(ctx)
	switch {
	case err != nil:
		return "its work"
	case begun > 0:
		return fmt.Sprintf("%d steps, %d of them charges that may or may not have happened", running, begun)
	case running == 1:
		return "a step"
	}
	return fmt.Sprintf("%d steps", running)
}

// running counts the steps under way, and among them the effects that have
// begun: what becomes of those when the worker dies, nobody knows.
func (d *demo) running(ctx context.Context) (all, begun int, err error) {
	err = d.pool.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE begun) FROM pawl.job WHERE state = 'running'").Scan(&all, &begun)
	return all, begun, err
}
