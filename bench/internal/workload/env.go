package workload

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"math"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/bench/internal/child"
	"github.com/pawlworks/pawl/bench/internal/meter"
	"github.com/pawlworks/pawl/bench/internal/report"
	"github.com/pawlworks/pawl/bench/internal/system"
)

// Env is what a measurement has at hand.
type Env struct {
	Order
	contestant system.Contestant
	talk       *child.Talk
	admin      *pgxpool.Pool // of the same database, apart from what is measured
	pool       *pgxpool.Pool // the contestant's
	wire       *meter.Wire
	tracer     pgx.QueryTracer // of the contestant's pool; set before open
	begun      atomic.Int64    // bodies, in this process
	hook       atomic.Pointer[func(run string, step int)]
	report     Report
}

func newEnv(ctx context.Context, o Order, c system.Contestant, talk *child.Talk) (*Env, error) {
	e := &Env{Order: o, contestant: c, talk: talk, wire: &meter.Wire{}}
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 2
	e.admin, err = pgxpool.NewWithConfig(ctx, config)
	return e, err
}

func (e *Env) close() {
	if e.pool != nil {
		e.pool.Close()
	}
	e.admin.Close()
}

func (e *Env) steps() int {
	if e.Case.Steps > 0 {
		return e.Case.Steps
	}
	return 10
}

// open makes the contestant's system in this process, with a pool of its own.
func (e *Env) open(ctx context.Context, slots int) (system.System, error) {
	if err := e.connect(ctx); err != nil {
		return nil, err
	}
	return e.another(ctx, slots)
}

// another makes a system on the pool there is.
func (e *Env) another(ctx context.Context, slots int) (system.System, error) {
	s, err := e.contestant.New(system.Options{URL: e.URL, Pool: e.pool, Slots: slots, Steps: e.steps(),
		Payload: payload(e.Case.Payload), OnStep: e.onStep, Lease: e.Lease, Traces: e.Case.Traces, Metrics: e.Case.Metrics})
	if err != nil {
		return nil, err
	}
	return s, s.Setup(ctx)
}

func (e *Env) connect(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(e.URL)
	if err != nil {
		return err
	}
	config.MaxConns = int32(e.Conns)
	if e.contestant.Conns > 0 {
		config.MaxConns = int32(e.contestant.Conns)
	}
	config.ConnConfig.DialFunc = e.wire.Dial
	config.ConnConfig.Tracer = e.tracer
	e.pool, err = pgxpool.NewWithConfig(ctx, config)
	return err
}

func (e *Env) onStep(run string, step int) {
	e.begun.Add(1)
	if hook := e.hook.Load(); hook != nil {
		(*hook)(run, step)
	}
}

func (e *Env) each(hook func(run string, step int)) { e.hook.Store(&hook) }

// payload is a JSON object of so many bytes that does not compress.
func payload(size int) []byte {
	if size == 0 {
		size = 200
	}
	raw := make([]byte, size)
	_, _ = rand.Read(raw)
	const frame = `{"data":""}`
	return []byte(`{"data":"` + base64.RawURLEncoding.EncodeToString(raw)[:max(0, size-len(frame))] + `"}`)
}

// n scales a number.
func (e *Env) n(full int) int { return max(1, int(math.Round(float64(full)*e.Scale))) }

// nPeers scales it further for peers.
func (e *Env) nPeers(full int) int {
	if e.tables() || e.PeerScale == 0 {
		return e.n(full)
	}
	return max(1, int(math.Round(float64(e.n(full))*e.PeerScale)))
}

// d scales a time, down to least, and in a mere trial to less.
func (e *Env) d(full, least time.Duration) time.Duration {
	if e.Scale < 0.01 {
		least /= 4
	}
	return max(least, time.Duration(float64(full)*min(e.Scale, 1)))
}

// tables tells whether the contestant keeps its runs in Pawl's tables.
func (e *Env) tables() bool { return e.Contestant == "pawl" || e.Contestant == "floor" }

func (e *Env) add(metric string, value float64) {
	report.Find(metric)
	if !math.IsNaN(value) && !math.IsInf(value, 0) {
		e.report.Values = append(e.report.Values, report.Value{Metric: metric, Value: value})
	}
}

// note tells something that the figures do not.
func (e *Env) note(format string, args ...any) {
	e.report.Notes = append(e.report.Notes, fmt.Sprintf(format, args...))
}

func (e *Env) checkpoint(ctx context.Context) error {
	_, err := e.admin.Exec(ctx, "CHECKPOINT")
	return err
}

// spawn starts a further process of this measurement.
func (e *Env) spawn(ctx context.Context, worker string, change func(*Order)) (*Process, error) {
	o := e.Order
	o.Worker = worker
	if change != nil {
		change(&o)
	}
	return child.Start[Report](ctx, o)
}

func (e *Env) database() string {
	u, err := url.Parse(e.URL)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(u.Path, "/")
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
