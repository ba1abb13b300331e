package engine

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/telemetry"
)

// metrics are the instruments of an engine. They count what is durable, by
// what a graph names: never by run, so that their number stays small.
type metrics struct {
	transitions, retries, dead, uncertain, asked, lapses, refusals, beats, busy metric.Int64Counter
	queued, attempt, commit, claim                                              metric.Float64Histogram
	batch                                                                       metric.Int64Histogram

	meter    metric.Meter
	database databaseGauges
	mu       sync.RWMutex
	labels   map[label]*labelled // made once, not for every step
}

// labelled are a label's attributes, in the forms in which they are asked for.
type labelled struct {
	observe metric.MeasurementOption
	add     []metric.AddOption
	record  []metric.RecordOption
}

// label is what is told apart at every attempt.
type label struct{ workflow, step, queue, outcome string }

// secondsFrom: from half a millisecond, what a hand-over takes, to an hour.
var secondsFrom = metric.WithExplicitBucketBoundaries(.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)

func newMetrics(p metric.MeterProvider) *metrics {
	if p == nil {
		p = otel.GetMeterProvider() // follows one that is set later
	}
	m := &metrics{meter: p.Meter(telemetry.Scope), labels: map[label]*labelled{}}
	counter := func(d telemetry.Metric) metric.Int64Counter {
		i, err := m.meter.Int64Counter(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.About))
		told(err)
		return i
	}
	seconds := func(d telemetry.Metric) metric.Float64Histogram {
		i, err := m.meter.Float64Histogram(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.About), secondsFrom)
		told(err)
		return i
	}
	m.transitions, m.retries, m.dead, m.uncertain = counter(telemetry.Transitions), counter(telemetry.Retries), counter(telemetry.Dead), counter(telemetry.Uncertain)
	m.asked, m.lapses, m.refusals = counter(telemetry.Reconciliations), counter(telemetry.Lapses), counter(telemetry.FenceRefusals)
	m.beats, m.busy = counter(telemetry.HeartbeatFailures), counter(telemetry.BusyRows)
	m.queued, m.attempt, m.commit, m.claim = seconds(telemetry.ClaimLatency), seconds(telemetry.AttemptDuration), seconds(telemetry.CommitDuration), seconds(telemetry.ClaimDuration)
	var err error
	m.batch, err = m.meter.Int64Histogram(telemetry.BatchSize.Name, metric.WithUnit(telemetry.BatchSize.Unit), metric.WithDescription(telemetry.BatchSize.About),
		metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 20, 50, 100, 200, 500))
	told(err)
	return m
}

// told leaves what an instrument has to complain of to the application's handler.
func told(err error) {
	if err != nil {
		otel.Handle(err)
	}
}

func (m *metrics) of(l label) *labelled {
	m.mu.RLock()
	known := m.labels[l]
	m.mu.RUnlock()
	if known != nil {
		return known
	}
	as := []attribute.KeyValue{telemetry.Queue.String(l.queue)}
	if l.workflow != "" {
		as = append(as, telemetry.Workflow.String(l.workflow), telemetry.Step.String(l.step), telemetry.Outcome.String(l.outcome))
	}
	o := metric.WithAttributeSet(attribute.NewSet(as...))
	known = &labelled{o, []metric.AddOption{o}, []metric.RecordOption{o}}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.labels[l] = known
	return known
}

// caused is what failures are told apart by.
func caused(workflow, step, code string, more ...attribute.KeyValue) metric.MeasurementOption {
	if code == "" {
		code = "_OTHER"
	}
	return metric.WithAttributes(append(more, telemetry.Workflow.String(workflow), telemetry.Step.String(step), telemetry.ErrorType.String(code))...)
}

// mostAttempts is the last attempt that is told apart from those before it.
const mostAttempts = 10

// ended counts an attempt. A nil change, or a lost one: the lease was lost.
func (m *metrics) ended(g *grant, l *lease, c *change, a answer, outcome string) {
	ctx := context.Background()
	if !m.transitions.Enabled(ctx) && !m.attempt.Enabled(ctx) { // nobody listens
		return
	}
	workflow, step := g.bind.workflow, g.name()
	by := m.of(label{workflow, step, g.queue(), outcome})
	m.transitions.Add(ctx, 1, by.add...)
	if l != nil {
		m.attempt.Record(ctx, l.granted.elapsed().Seconds(), by.record...)
	}
	if g.mode == modeAsk {
		m.asked.Add(ctx, 1, by.add...)
	}
	if c == nil {
		return
	}
	switch {
	case a.verdict == verdictLost:
		m.refusals.Add(ctx, 1, by.add...)
	case a.verdict != verdictDone:
	case a.state == stateDead:
		m.dead.Add(ctx, 1, caused(workflow, step, c.code))
	case c.event == "retried":
		m.retries.Add(ctx, 1, caused(workflow, step, c.code, telemetry.Attempt.Int(min(int(g.attempt), mostAttempts))))
	case c.event == "uncertain":
		m.uncertain.Add(ctx, 1, caused(workflow, step, c.code))
	}
}

// lapsed counts a lease that was taken back.
func (m *metrics) lapsed(r db.RecoverRow, at spot) {
	ctx, by := context.Background(), caused(*r.Workflow, at.step, "LEASE_EXPIRED")
	m.lapses.Add(ctx, 1, metric.WithAttributes(telemetry.Workflow.String(*r.Workflow), telemetry.Step.String(at.step)))
	switch *r.State {
	case stateDead:
		m.dead.Add(ctx, 1, by)
	case stateUncertain:
		m.uncertain.Add(ctx, 1, by)
	}
}

// leased counts an attempt that begins.
func (m *metrics) leased(g *grant) {
	if g.hops == 0 && m.queued.Enabled(context.Background()) { // what is handed over does not wait
		m.queued.Record(context.Background(), max(g.grantedAt.Sub(g.due).Seconds(), 0), m.of(label{queue: g.queue()}).record...)
	}
}

var (
	ofLeases   = metric.WithAttributeSet(attribute.NewSet(telemetry.Kind.String("lease")))
	ofSessions = metric.WithAttributeSet(attribute.NewSet(telemetry.Kind.String("session")))
)

// missed counts heartbeats that failed.
func (m *metrics) missed(n int, of metric.MeasurementOption) {
	m.beats.Add(context.Background(), int64(n), of)
}

// committed measures how long an outcome waited for its commit.
func (m *metrics) committed(since time.Time) {
	m.commit.Record(context.Background(), time.Since(since).Seconds())
}
