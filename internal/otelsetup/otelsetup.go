// Package otelsetup brings OpenTelemetry's SDK to the commands and examples of
// this repository, as its standard OTEL_* variables ask. An application does the same
// in its own way; the library needs the API alone.
package otelsetup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// stopWithin is how long the end of a program waits for a collector.
const stopWithin = 3 * time.Second

// Start sets the global providers of traces and metrics if a variable names where
// either is to go, and returns how to send what is left before the program ends.
// Without such a variable nothing is set up. An error: a variable is not understood.
func Start(ctx context.Context) (stop func(), err error) {
	var stops []func(context.Context) error
	stop = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		for _, s := range stops {
			if err := s(ctx); err != nil {
				fmt.Fprintln(os.Stderr, "telemetry: the last of it may be lost:", err)
			}
		}
	}
	if asked("TRACES") {
		out, err := autoexport.NewSpanExporter(ctx)
		if err != nil {
			return stop, fmt.Errorf("where traces go: %w", err)
		}
		p := trace.NewTracerProvider(trace.WithBatcher(out), trace.WithResource(named(ctx)))
		otel.SetTracerProvider(p)
		stops = append(stops, p.Shutdown)
	}
	if asked("METRICS") {
		in, err := autoexport.NewMetricReader(ctx)
		if err != nil {
			stop()
			return func() {}, fmt.Errorf("where metrics go: %w", err)
		}
		p := metric.NewMeterProvider(metric.WithReader(in), metric.WithResource(named(ctx)))
		otel.SetMeterProvider(p)
		stops = append(stops, p.Shutdown)
	}
	return stop, nil
}

// Main is Start and run, for a program's main function.
func Main(ctx context.Context, run func(context.Context) error) error {
	stop, err := Start(ctx)
	defer stop()
	if err != nil {
		return err
	}
	return run(ctx)
}

// asked tells whether a signal is to go anywhere: OpenTelemetry's default would
// be a collector on this machine.
func asked(signal string) bool {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" {
		return false
	}
	for _, name := range []string{"OTEL_" + signal + "_EXPORTER", "OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		if v := os.Getenv(name); v != "" {
			return v != "none"
		}
	}
	return false
}

// named is what the process is called: OTEL_SERVICE_NAME, or pawl.
func named(ctx context.Context) *resource.Resource {
	r, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "pawl")), resource.WithFromEnv(), resource.WithTelemetrySDK(), resource.WithProcessPID(), resource.WithHost())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		fmt.Fprintln(os.Stderr, "telemetry:", err)
	}
	return r
}
