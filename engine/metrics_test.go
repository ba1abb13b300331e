package engine_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/internal/telemetry"
	"github.com/pawlworks/pawl/steps"
)

// meter reads an engine's metrics whenever it is asked.
type meter struct {
	testing.TB
	reader *metric.ManualReader
}

func metered(t testing.TB) (meter, *metric.MeterProvider) {
	t.Helper()
	r := metric.NewManualReader()
	return meter{t, r}, metric.NewMeterProvider(metric.WithReader(r))
}

// total sums a metric's points that have these attributes ("key=value"): values,
// or of a histogram how many were recorded.
func (m meter) total(d telemetry.Metric, attrs ...string) (sum float64) {
	m.Helper()
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(context.Background(), &all); err != nil {
		m.Fatal(err)
	}
	add := func(set attribute.Set, v float64) {
		keys := map[attribute.Key]bool{}
		for _, by := range d.By {
			keys[by] = set.HasValue(by)
		}
		if set.Len() != len(d.By) || slices.Contains(slices.Collect(maps.Values(keys)), false) {
			m.Errorf("%s is told apart by %v, not by %v", d.Name, set.ToSlice(), d.By)
		}
		for _, want := range attrs {
			key, value, _ := strings.Cut(want, "=")
			if got, _ := set.Value(attribute.Key(key)); got.String() != value {
				return
			}
		}
		sum += v
	}
	for _, scope := range all.ScopeMetrics {
		for _, one := range scope.Metrics {
			if one.Name != d.Name {
				continue
			}
			if one.Unit != d.Unit || one.Description != d.About {
				m.Errorf("%s: %q, %q", one.Name, one.Unit, one.Description)
			}
			var kind telemetry.Type
			switch data := one.Data.(type) {
			case metricdata.Sum[int64]:
				kind = telemetry.Counter
				points(data.DataPoints, add)
			case metricdata.Sum[float64]:
				kind = telemetry.Counter
				points(data.DataPoints, add)
			case metricdata.Gauge[int64]:
				kind = telemetry.Gauge
				points(data.DataPoints, add)
			case metricdata.Gauge[float64]:
				kind = telemetry.Gauge
				points(data.DataPoints, add)
			case metricdata.Histogram[int64]:
				kind = telemetry.Histogram
				counts(data.DataPoints, add)
			case metricdata.Histogram[float64]:
				kind = telemetry.Histogram
				counts(data.DataPoints, add)
			default:
				m.Fatalf("%s is %T", one.Name, data)
			}
			if kind != d.Type {
				m.Errorf("%s is a %s, not a %s", d.Name, kind, d.Type)
			}
		}
	}
	return sum
}

func points[N int64 | float64](ps []metricdata.DataPoint[N], add func(attribute.Set, float64)) {
	for _, p := range ps {
		add(p.Attributes, float64(p.Value))
	}
}

func counts[N int64 | float64](ps []metricdata.HistogramDataPoint[N], add func(attribute.Set, float64)) {
	for _, p := range ps {
		add(p.Attributes, float64(p.Count))
	}
}

// is waits until a metric says so: it is written a moment after what it tells of.
func (m meter) is(want float64, d telemetry.Metric, attrs ...string) {
	m.Helper()
	effUntil(m, d.Name+" is as expected", func() bool { return m.total(d, attrs...) >= want })
	if got := m.total(d, attrs...); got != want {
		m.Errorf("%s %v is %v, not %v", d.Name, attrs, got, want)
	}
}

// moves waits until a metric is more than it was.
func (m meter) moves(was float64, d telemetry.Metric, attrs ...string) {
	m.Helper()
	effUntil(m, d.Name+" has moved", func() bool { return m.total(d, attrs...) > was })
}

// What becomes of attempts is counted by workflow, step, queue, outcome and code.
func TestMetricsRun(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	m, provider := metered(t)
	var tries atomic.Int64
	w, dying := steps.Declare[int, int]("counted"), steps.Declare[int, int]("dying")
	def := w.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
		a := steps.New("retried", func(_ context.Context, n int) (int, error) {
			if tries.Add(1) <= 2 {
				return 0, steps.RetryAfter(time.Millisecond, errors.New("no"))
			}
			return n, nil
		}, steps.Queue("slow")).Do(f, in)
		return steps.New("charged", func(context.Context, int) (int, error) { return 0, errors.New("no answer") }).
			LookUp(func(_ context.Context, n int) (steps.Verdict[int], error) { return steps.Happened(n), nil }, time.Second).Do(f, a)
	})
	dies := dying.Of(steps.New("s", func(context.Context, int) (int, error) { return 0, steps.Permanent("NO_FUNDS", errors.New("no")) }))
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{def, dies}, MeterProvider: provider, Slots: 7, Name: "w"})
	work(t, e)
	effSuccess(t, e, effStart(t, e, w, 1))
	r := effStart(t, e, dying, 1)
	effState(t, e, r.ID, engine.Failed)

	m.is(2, telemetry.Transitions, "pawl.workflow=counted", "pawl.step=retried", "pawl.queue=slow", "pawl.outcome=retried")
	m.is(1, telemetry.Transitions, "pawl.step=retried", "pawl.outcome=completed")
	m.is(1, telemetry.Retries, "pawl.workflow=counted", "pawl.step=retried", "error.type=RETRY_AFTER", "pawl.attempt=1")
	m.is(1, telemetry.Retries, "pawl.step=retried", "pawl.attempt=2")
	m.is(1, telemetry.Uncertain, "pawl.workflow=counted", "pawl.step=charged", "error.type=UNKNOWN")
	m.is(1, telemetry.Reconciliations, "pawl.step=charged", "pawl.outcome=settled")
	m.is(1, telemetry.Dead, "pawl.workflow=dying", "pawl.step=s", "error.type=NO_FUNDS")
	m.is(1, telemetry.Dead)
	m.is(3, telemetry.AttemptDuration, "pawl.step=retried", "pawl.queue=slow")
	m.moves(2, telemetry.ClaimLatency, "pawl.queue=slow")
	m.moves(4, telemetry.CommitDuration)
	m.moves(4, telemetry.ClaimDuration)
	m.moves(1, telemetry.BatchSize)
	m.is(7, telemetry.Slots, "pawl.worker=w")
	m.is(float64(pool.Config().MaxConns), telemetry.PoolLimit, "pawl.worker=w")
	m.moves(0, telemetry.PoolConns)
	for _, none := range []telemetry.Metric{telemetry.Lapses, telemetry.FenceRefusals, telemetry.HeartbeatFailures, telemetry.BusyRows} {
		if n := m.total(none); n != 0 {
			t.Errorf("%s is %v without a cause", none.Name, n)
		}
	}
}

// A lease that runs out is a lapse where it is taken back, and a refusal where
// what came of it is written too late.
func TestMetricsLapse(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	m, provider := metered(t)
	w := steps.Declare[int, int]("lapsed")
	began, done := make(chan struct{}, 9), make(chan struct{})
	var tries atomic.Int64
	def := w.Of(steps.New("s", func(_ context.Context, n int) (int, error) {
		if tries.Add(1) == 1 {
			began <- struct{}{}
			<-done
		}
		return n, nil
	}))
	slow := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{def}, MeterProvider: provider, Slots: 1, Name: "slow"})
	r := effStart(t, slow, w, 1)
	work(t, slow)
	effSignal(t, "the body", began)
	m.is(1, telemetry.SlotsUsed, "pawl.worker=slow")
	effExec(t, pool, "UPDATE pawl.job SET expires_at = pawl.now() - interval '1 second' WHERE run_id = $1", r.ID)
	work(t, effEngine(t, pool, engine.Config{Workflows: []steps.Definition{def}, MeterProvider: provider, Name: "other"}))
	effSuccess(t, slow, r)
	m.is(1, telemetry.Lapses, "pawl.workflow=lapsed", "pawl.step=s")
	close(done)
	m.is(1, telemetry.FenceRefusals, "pawl.workflow=lapsed", "pawl.step=s")
	m.is(1, telemetry.Transitions, "pawl.outcome=lease_lost")
	effUntil(t, "the slots are free", func() bool { return m.total(telemetry.SlotsUsed) == 0 })
}

// What stands in the way: a row that is locked, heartbeats that fail, a lease
// that comes to its end, a pool that is used up.
func TestMetricsTrouble(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	m, provider := metered(t)
	ending, locked := steps.Declare[int, int]("ending"), steps.Declare[int, int]("locked")
	began := make(chan struct{}, 9)
	waits := func(goOn <-chan struct{}) func(context.Context, int) (int, error) {
		return func(_ context.Context, n int) (int, error) {
			began <- struct{}{}
			<-goOn
			return n, nil
		}
	}
	ended, goOn := make(chan struct{}), make(chan struct{})
	e := effEngine(t, pool, engine.Config{MeterProvider: provider, Workflows: []steps.Definition{
		ending.Of(steps.New("s", waits(ended), steps.Lease(3*time.Second), steps.Heartbeat(time.Second))), locked.Of(steps.New("s", waits(goOn)))}})
	short := effStart(t, e, ending, 1)
	work(t, e)
	effSignal(t, "the body", began)
	m.is(1, telemetry.NearExpiry) // it makes no progress
	close(ended)
	effSuccess(t, e, short) // in this attempt or, where that was too late, in another
	effUntil(t, "nothing runs", func() bool { return m.total(telemetry.SlotsUsed) == 0 })
	for len(began) > 0 {
		<-began
	}
	r := effStart(t, e, locked, 1)
	effSignal(t, "the other body", began)
	tx, err := pool.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }() // what stops waits for the row
	if _, err := tx.Exec(context.Background(), "SELECT FROM pawl.job WHERE run_id = $1 FOR UPDATE", r.ID); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	m.moves(0, telemetry.BusyRows)
	if err := tx.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
	effSuccess(t, e, r)

	was := m.total(telemetry.PoolWaits)
	var taken []func()
	for range pool.Config().MaxConns {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		if c, err := pool.Acquire(ctx); err == nil {
			taken = append(taken, c.Release)
		}
		cancel()
	}
	waited := make(chan error, 1)
	go func() { waited <- pool.Ping(context.Background()) }()
	effUntil(t, "all connections are in use", func() bool {
		return m.total(telemetry.PoolConns, "pawl.connection.state=used") == m.total(telemetry.PoolLimit)
	})
	for _, release := range taken {
		release()
	}
	if err := effSignal(t, "the connection", waited); err != nil {
		t.Fatal(err)
	}
	m.moves(was, telemetry.PoolWaits)
	m.moves(0, telemetry.PoolWaitTime)
}

// Renewals that the database refuses are heartbeat failures, of a kind.
func TestMetricsHeartbeats(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	m, provider := metered(t)
	w := steps.Declare[int, int]("beating")
	began, over := make(chan struct{}, 9), make(chan struct{})
	e := effEngine(t, pool, engine.Config{MeterProvider: provider, Session: 2 * time.Second, Workflows: []steps.Definition{w.Of(steps.New("s", func(ctx context.Context, n int) (int, error) {
		began <- struct{}{}
		for {
			select {
			case <-over:
				return n, nil
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			case <-time.After(10 * time.Millisecond):
				_ = steps.Acknowledge(ctx) // its context tells the same
			}
		}
	}, steps.Lease(10*time.Second), steps.Heartbeat(100*time.Millisecond)))}})
	r := effStart(t, e, w, 1)
	work(t, e)
	effSignal(t, "the body", began)
	effExec(t, pool, "ALTER TABLE pawl.job RENAME TO job_away")
	m.moves(0, telemetry.HeartbeatFailures, "pawl.kind=lease")
	m.moves(0, telemetry.HeartbeatFailures, "pawl.kind=session")
	effExec(t, pool, "ALTER TABLE pawl.job_away RENAME TO job")
	close(over)
	effSuccess(t, e, r)
}
