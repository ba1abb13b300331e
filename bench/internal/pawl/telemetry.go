package pawl

import (
	"io"
	"time"

	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// telemetry is OpenTelemetry's SDK as an application sets it up, but for what
// is exported: that is encoded, and thrown away. Nil: none.
func (b *bench) telemetry() (traces trace.TracerProvider, metrics metric.MeterProvider, err error) {
	if b.o.Traces {
		to, err := stdouttrace.New(stdouttrace.WithWriter(io.Discard))
		if err != nil {
			return nil, nil, err
		}
		traces = sdktrace.NewTracerProvider(sdktrace.WithBatcher(to), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.01))))
	}
	if b.o.Metrics {
		to, err := stdoutmetric.New(stdoutmetric.WithWriter(io.Discard))
		if err != nil {
			return nil, nil, err
		}
		metrics = sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(to, sdkmetric.WithInterval(time.Second))))
	}
	return traces, metrics, nil
}
