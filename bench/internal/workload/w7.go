package workload

import (
	"context"
	"errors"
	"time"

	"github.com/pawlworks/pawl/bench/internal/meter"
)

var w7 = Workload{
	Name:  "W7",
	Title: "what a step of W1 writes and says",
	Cases: []Case{{N: 2000, Peers: true}},
	Limit: 3 * time.Minute,
	Measure: func(ctx context.Context, e *Env) error {
		if e.contestant.Direct {
			e.note("starting is running here: what starts cost is in it")
		}
		runs := e.nPeers(e.Case.N)
		if err := e.trackCalls(ctx); err != nil {
			return err
		}
		s, err := e.open(ctx, e.Slots)
		if err != nil {
			return err
		}
		if err := e.enqueue(ctx, s, runs); err != nil {
			return err
		}
		e.pool.Reset() // what has been counted so far is told at a connection's end
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		calls, err := e.countCalls(ctx)
		if err != nil {
			return err
		}
		before, err := e.readWritten(ctx)
		if err != nil {
			return err
		}
		traffic := e.wire.Traffic()
		steps := float64(runs * e.steps())
		err = e.drain(ctx, s, runs, func(time.Duration) error {
			t := e.wire.Traffic().Minus(traffic)
			if t.RoundTrips > 0 { // else it has connections of its own
				e.add("round_trips_per_step", float64(t.RoundTrips)/steps)
				e.add("executions_per_step", float64(t.Statements)/steps)
			}
			after, err := e.readWritten(ctx)
			if err != nil {
				return err
			}
			if after.redo != before.redo {
				e.note("a checkpoint fell into the measurement: WAL is left out")
			} else {
				e.add("wal_bytes_per_step", float64(after.wal-before.wal)/steps)
			}
			e.add("disk_bytes_per_step", float64(after.disk-before.disk)/steps)
			if calls != nil {
				c, err := calls()
				if err != nil {
					return err
				}
				e.add("sql_calls_per_step", float64(c)/steps)
				dearest, err := e.dearest(ctx, 4, steps)
				if err != nil {
					return err
				}
				for _, text := range dearest {
					e.note("%s", text)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		e.pool.Close() // its backends tell the rest of their counts when they end
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		images, err := meter.FullPageImages(ctx, e.admin)
		if err != nil {
			return err
		}
		e.add("wal_full_page_images", float64(images-before.images))
		return nil
	},
}

type written struct {
	wal, disk, images int64
	redo              string
}

func (e *Env) readWritten(ctx context.Context) (w written, err error) {
	var errs [4]error
	w.disk, errs[0] = meter.Disk(ctx, e.admin)
	w.images, errs[1] = meter.FullPageImages(ctx, e.admin)
	w.redo, errs[2] = meter.Redo(ctx, e.admin)
	w.wal, errs[3] = meter.WAL(ctx, e.admin)
	return w, errors.Join(errs[:]...)
}
