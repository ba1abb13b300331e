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
	of := &observing{meter: w.e.metrics.meter}
	slots, used, expiring := of.gauge(telemetry.Slots), of.gauge(telemetry.SlotsUsed), of.gauge(telemetry.NearExpiry)
	conns, limit := of.gauge(telemetry.PoolConns), of.gauge(telemetry.PoolLimit)
	waits, waited := of.counter(telemetry.PoolWaits), of.seconds(telemetry.PoolWaitTime)
	name := telemetry.Worker.String(w.e.config.Name)
	by := metric.WithAttributes(name)
	state := func(s string) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(name, telemetry.ConnState.String(s)))
	}
	inUse, idle := state("used"), state("idle")
	return of.tell(func(_ context.Context, o metric.Observer) {
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
	})
}
