package alerts

import (
	"context"
	"testing"

	"github.com/pawlworks/pawl/internal/telemetry"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

// metrics is what Prometheus sees of each metric of Pawl's: its series' names,
// and their labels. It is what the exporter itself makes of them.
func metrics(t testing.TB) map[string]map[string]bool {
	t.Helper()
	registry := prometheus.NewRegistry()
	e, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	if err != nil {
		t.Fatal(err)
	}
	meter := sdk.NewMeterProvider(sdk.WithReader(e)).Meter(telemetry.Scope)
	ctx := context.Background()
	for _, m := range telemetry.Metrics {
		var by []attribute.KeyValue
		for _, k := range m.By {
			by = append(by, k.String("x"))
		}
		with := metric.WithAttributes(by...)
		var err error
		switch m.Type {
		case telemetry.Counter:
			var c metric.Float64Counter
			if c, err = meter.Float64Counter(m.Name, metric.WithUnit(m.Unit)); err == nil {
				c.Add(ctx, 1, with)
			}
		case telemetry.Gauge:
			var g metric.Float64Gauge
			if g, err = meter.Float64Gauge(m.Name, metric.WithUnit(m.Unit)); err == nil {
				g.Record(ctx, 1, with)
			}
		case telemetry.Histogram:
			var h metric.Float64Histogram
			if h, err = meter.Float64Histogram(m.Name, metric.WithUnit(m.Unit)); err == nil {
				h.Record(ctx, 1, with)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]map[string]bool{}
	for _, f := range families {
		by := map[string]bool{}
		for _, l := range f.GetMetric()[0].GetLabel() {
			by[l.GetName()] = true
		}
		if f.GetType() != dto.MetricType_HISTOGRAM {
			there[f.GetName()] = by
			continue
		}
		there[f.GetName()+"_count"], there[f.GetName()+"_sum"] = by, by
		there[f.GetName()+"_bucket"] = map[string]bool{"le": true}
		for l := range by {
			there[f.GetName()+"_bucket"][l] = true
		}
	}
	if len(there) < len(telemetry.Metrics) {
		t.Fatalf("%d series of %d metrics", len(there), len(telemetry.Metrics))
	}
	return there
}
