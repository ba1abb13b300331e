package gue

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/vgarvardt/gue/v5"
	"github.com/vgarvardt/gue/v5/adapter/pgxv5"

	"github.com/pawlworks/pawl/bench/internal/peers/probe"
	"github.com/pawlworks/pawl/bench/internal/system"
)

const tunedPoll = 200 * time.Millisecond

// Contestants are gue's variants.
func Contestants() []system.Contestant {
	const defaults = "workers = slots, graceful shutdown"
	return []system.Contestant{
		contestant("job a step", defaults),
		contestant("job a step, tuned", fmt.Sprintf("%s, RunAtPollStrategy (by default PriorityPollStrategy), poll interval %s", defaults, tunedPoll),
			gue.WithPoolPollStrategy(gue.RunAtPollStrategy), gue.WithPoolPollInterval(tunedPoll)),
	}
}

func contestant(variant, settings string, tuning ...gue.WorkerPoolOption) system.Contestant {
	// Without it a stop breaks the connections of the workers that are busy.
	tuning = append(tuning, gue.WithPoolGracefulShutdown(context.Background))
	return system.Contestant{
		Name:     "gue",
		Variant:  variant,
		Version:  probe.Version("github.com/vgarvardt/gue/v5"),
		Settings: settings,
		New: func(o system.Options) (system.System, error) {
			client, err := gue.NewClient(pgxv5.NewConnPool(o.Pool))
			if err != nil {
				return nil, err
			}
			return &queue{opts: o, tuning: tuning, client: client, probe: probe.New(o, "SELECT count(*) FROM bench_done")}, nil
		},
	}
}

// Setup makes gue's table by hand, as gue asks its users to, and the bench's.
func (q *queue) Setup(ctx context.Context) error {
	_, err := q.opts.Pool.Exec(ctx, `
		CREATE TABLE IF NOT EXISTS gue_jobs (
			job_id text PRIMARY KEY, priority smallint NOT NULL, run_at timestamptz NOT NULL,
			job_type text NOT NULL, args bytea NOT NULL, error_count integer NOT NULL DEFAULT 0, last_error text,
			queue text NOT NULL, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL);
		CREATE INDEX IF NOT EXISTS idx_gue_jobs_selector ON gue_jobs (queue, run_at, priority);
		CREATE TABLE IF NOT EXISTS bench_done (run text PRIMARY KEY)`)
	return err
}

func watcher(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 1
	return pgxpool.NewWithConfig(ctx, config)
}
