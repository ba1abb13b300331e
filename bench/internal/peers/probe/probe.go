// Package probe is what the peers' adapters share: watching how many runs
// have succeeded, without adding to what is measured, and the checks that the
// right thing was done.
package probe

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/bench/internal/system"
)

// Probe watches one contestant's database.
type Probe struct {
	url    string
	query  string
	want   payload
	failed atomic.Pointer[error]
}

// New makes a probe. The query counts the runs that have succeeded.
func New(o system.Options, query string) *Probe {
	return &Probe{url: o.URL, query: query, want: payload{text: o.Payload}}
}

// Done counts on a connection of its own: the contestant's pool is measured.
func (p *Probe) Done(ctx context.Context) (int, error) {
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return p.count(ctx, conn)
}

func (p *Probe) count(ctx context.Context, conn *pgx.Conn) (n int, err error) {
	err = conn.QueryRow(ctx, p.query).Scan(&n)
	return n, err
}

// Wait returns when n runs have succeeded. It asks every 20 ms, and less often
// where the question itself takes more than a millisecond.
func (p *Probe) Wait(ctx context.Context, n int) error {
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for {
		asked := time.Now()
		done, err := p.count(ctx, conn)
		if err != nil {
			return fmt.Errorf("waiting for %d runs: %w", n, err)
		}
		if done >= n {
			return nil
		}
		if err := p.failed.Load(); err != nil {
			return *err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d runs are done: %w", done, n, ctx.Err())
		case <-time.After(max(20*time.Millisecond, 20*time.Since(asked))):
		}
	}
}

// Step is called by each step with the payload that reached it. An error is
// for the step to return; Wait reports it too, for nobody reads the logs.
func (p *Probe) Step(run string, step int, got []byte) error {
	if p.want.same(got) {
		return nil
	}
	err := fmt.Errorf("step %d of run %s got a payload of %d bytes that is not the run's input", step, run, len(got))
	p.failed.CompareAndSwap(nil, &err)
	return err
}

// Quiet is a logger for libraries that insist on one.
func Quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError}))
}
