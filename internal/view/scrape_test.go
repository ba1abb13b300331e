package view_test

import (
	"context"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/view"
	"github.com/pawlworks/pawl/steps"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// BenchmarkScrape reads all metrics of a process that works where a million runs
// have ended and a hundred thousand wait, each time from the database:
// go test ./internal/view -run - -bench Scrape -benchtime 5x
func BenchmarkScrape(b *testing.B) {
	pool := view.Layout(b, 1_000_000)
	ctx, stop := context.WithCancel(context.Background())
	if _, err := pool.Exec(ctx, "VACUUM ANALYZE pawl.run, pawl.job, pawl.key, pawl.history, pawl.session"); err != nil {
		b.Fatal(err)
	}
	reader := metric.NewManualReader()
	w := steps.Declare[int, int]("benchmark")
	e, err := engine.New(ctx, pool, engine.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)),
		Workflows: []steps.Definition{w.Of(steps.New("s", func(_ context.Context, n int) (int, error) { return n, nil }))}})
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Work(ctx) }()
	read := func() (found int) {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(ctx, &all); err != nil {
			b.Fatal(err)
		}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				if m.Name == "pawl.queue.due" {
					found = len(m.Data.(metricdata.Gauge[int64]).DataPoints)
				}
			}
		}
		return found
	}
	for read() == 0 { // it works, and has read the gauges once
		time.Sleep(100 * time.Millisecond)
	}
	var slowest time.Duration
	for b.Loop() {
		b.StopTimer()
		time.Sleep(5100 * time.Millisecond) // what was read is kept for five seconds
		b.StartTimer()
		begun := time.Now()
		if read() == 0 {
			b.Fatal("the gauges of the database were left out")
		}
		slowest = max(slowest, time.Since(begun))
	}
	b.ReportMetric(float64(slowest.Microseconds())/1000, "ms/slowest")
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
