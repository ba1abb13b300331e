package engine

import (
	"context"

	"go.opentelemetry.io/otel/metric"

	"github.com/pawlworks/pawl/internal/telemetry"
)

// observing gathers the instruments that one callback tells of.
type observing struct {
	meter metric.Meter
	all   []metric.Observable
}

// observed is an instrument that was made, or complained of.
func observed[T metric.Observable](o *observing, i T, err error) T {
	told(err)
	o.all = append(o.all, i)
	return i
}

func (o *observing) gauge(d telemetry.Metric) metric.Int64ObservableGauge {
	i, err := o.meter.Int64ObservableGauge(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.About))
	return observed(o, i, err)
}

func (o *observing) age(d telemetry.Metric) metric.Float64ObservableGauge {
	i, err := o.meter.Float64ObservableGauge(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.About))
	return observed(o, i, err)
}

func (o *observing) counter(d telemetry.Metric) metric.Int64ObservableCounter {
	i, err := o.meter.Int64ObservableCounter(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.About))
	return observed(o, i, err)
}

func (o *observing) seconds(d telemetry.Metric) metric.Float64ObservableCounter {
	i, err := o.meter.Float64ObservableCounter(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.About))
	return observed(o, i, err)
}

// tell has the callback asked until stop is called.
func (o *observing) tell(callback func(context.Context, metric.Observer)) (stop func()) {
	r, err := o.meter.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		callback(ctx, to)
		return nil
	}, o.all...)
	told(err)
	return func() {
		if r != nil {
			told(r.Unregister())
		}
	}
}
