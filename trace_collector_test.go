//go:build unix

package pawl_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// otlpSink is a real collector: it takes what its processes send by OTLP, as the
// variables of OpenTelemetry have told them to, and writes it to a file.
func otlpSink(t testing.TB) sink {
	t.Helper()
	dir := t.TempDir()
	program := collector(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, out, config := l.Addr().String(), filepath.Join(dir, "otlp.json"), filepath.Join(dir, "collector.yaml")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, collectorConfig, address, out), 0o600); err != nil {
		t.Fatal(err)
	}
	var log lockedBuffer
	cmd := exec.Command(program, "--config="+config)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the collector: %v\n%s", cmd.ProcessState, &log)
		}
	})
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the collector does not listen: %v\n%s", err, &log)
		}
	}
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL("http://"+address+"/v1/traces"))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	return sink{
		tells:    func(r *role) { r.Env = otlpTo("http://" + address) },
		provider: provider,
		spans:    func() []span { return fromOTLP(lines[otlpLine](t, out)) },
	}
}

// otlpTo are the variables that send spans somewhere, soon enough that a process
// which is to be killed has sent what had ended.
func otlpTo(endpoint string) []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_METRICS_EXPORTER=none", "OTEL_BSP_SCHEDULE_DELAY=20"}
}

const collectorConfig = `receivers:
  otlp:
    protocols:
      http:
        endpoint: %s
exporters:
  file:
    path: %s
    flush_interval: 50ms
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    traces:
      receivers: [otlp]
      exporters: [file]
`

// collector builds the collector, from the module that it has to itself.
func collector(t testing.TB) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "collector")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = filepath.Join("internal", "collector")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the collector can't be built: %v\n%s", err, out)
	}
	return program
}

// otlpLine is a line of the collector's file: the part that the tests look at.
type otlpLine struct {
	ResourceSpans []struct {
		ScopeSpans []struct {
			Spans []struct {
				TraceID, SpanID, ParentSpanID      string
				Name                               string
				Kind                               int
				StartTimeUnixNano, EndTimeUnixNano string
				Status                             struct{ Code int }
				Attributes                         []otlpAttribute
				Events                             []struct{ Name string }
			}
		}
	}
}

type otlpAttribute struct {
	Key   string
	Value map[string]any
}

var otlpKinds = []string{"unspecified", "internal", "server", "client", "producer", "consumer"}

func fromOTLP(all []otlpLine) (spans []span) {
	for _, line := range all {
		for _, r := range line.ResourceSpans {
			for _, scope := range r.ScopeSpans {
				for _, s := range scope.Spans {
					out := span{Trace: s.TraceID, ID: s.SpanID, Parent: s.ParentSpanID, Name: s.Name, Kind: otlpKinds[s.Kind],
						Start: nano(s.StartTimeUnixNano), End: nano(s.EndTimeUnixNano), Failed: s.Status.Code == 2, Attrs: map[string]string{}}
					for _, a := range s.Attributes {
						for _, v := range a.Value {
							out.Attrs[a.Key] = fmt.Sprint(v)
						}
					}
					for _, e := range s.Events {
						out.Events = append(out.Events, e.Name)
					}
					spans = append(spans, out)
				}
			}
		}
	}
	return spans
}

func nano(s string) time.Time {
	n, _ := strconv.ParseInt(s, 10, 64)
	return time.Unix(0, n)
}

// deafCollector takes requests and never answers them.
func deafCollector(t testing.TB) (url string, asked func() bool) {
	t.Helper()
	var came sync.Once
	first, over := make(chan struct{}), make(chan struct{})
	s := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		came.Do(func() { close(first) })
		select {
		case <-over:
		case <-r.Context().Done():
		}
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }() // ends with Close
	t.Cleanup(func() { close(over); _ = s.Close() })
	return "http://" + l.Addr().String(), func() bool {
		select {
		case <-first:
			return true
		default:
			return false
		}
	}
}
