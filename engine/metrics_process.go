package engine

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pawlworks/pawl/internal/telemetry"
)

// observed tells, whenever somebody asks, how a worker and its pool are. It
// costs no round trip.
func (w *worker) observed() (stop func()) {
	meter := w.e.metrics.meter
	var all []metric.Observable
	gauge := func(d telemetry.Metric) metric.Int64ObservableGauge {
		i, err := meter.Int64ObservableGauge(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.About))
		told(err)
		all = append(all, i)
		return i
	}
	slots, used, expiring := gauge(telemetry.Slots), gauge(telemetry.SlotsUsed), gauge(telemetry.NearExpiry)
	conns, limit := gauge(telemetry.PoolConns), gauge(telemetry.PoolLimit)
	waits, err := meter.Int64ObservableCounter(telemetry.PoolWaits.Name, metric.WithUnit(telemetry.PoolWaits.Unit), metric.WithDescription(telemetry.PoolWaits.About))
	told(err)
	waited, err := meter.Float64ObservableCounter(telemetry.PoolWaitTime.Name, metric.WithUnit(telemetry.PoolWaitTime.Unit), metric.WithDescription(telemetry.PoolWaitTime.About))
	told(err)
	name := telemetry.Worker.String(w.e.config.Name)
	by := metric.WithAttributes(name)
	state := func(s string) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(name, telemetry.ConnState.String(s)))
	}
	inUse, idle := state("used"), state("idle")
	r, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(slots, int64(w.e.config.Slots), by)
		leases, near := w.all(), 0
		now := moments()
		for _, l := range leases {
			if l.trusted(now) < l.termNow()/3 {
				near++
			}
		}
		o.ObserveInt64(used, int64(len(leases)), by)
		o.ObserveInt64(expiring, int64(near), by)
		s := w.e.pool.Stat()
		o.ObserveInt64(conns, int64(s.AcquiredConns()), inUse)
		o.ObserveInt64(conns, int64(s.IdleConns()), idle)
		o.ObserveInt64(limit, int64(s.MaxConns()), by)
		o.ObserveInt64(waits, s.EmptyAcquireCount(), by)
		o.ObserveFloat64(waited, s.EmptyAcquireWaitTime().Seconds(), by)
		return nil
	}, append(all, waits, waited)...)
	told(err)
	return func() {
		if r != nil {
			told(r.Unregister())
		}
	}
}
