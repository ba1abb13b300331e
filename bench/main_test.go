package main

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/pawlworks/pawl/bench/internal/child"
	"github.com/pawlworks/pawl/bench/internal/report"
	"github.com/pawlworks/pawl/bench/internal/runner"
	"github.com/pawlworks/pawl/bench/internal/workload"
)

func TestMain(m *testing.M) {
	child.Main(workload.Do)
	os.Exit(m.Run())
}

// TestAll runs tiny versions of all workloads, so that they can't rot.
func TestAll(t *testing.T) {
	r, err := runner.Run(t.Context(), runner.Options{Rounds: 1, Scale: 0.001, Slots: 50, Conns: 8, Systems: "pawl,floor", Trial: true}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Failed {
		t.Errorf("%s failed", f)
	}
	for _, must := range []struct{ workload, system, metric string }{
		{"W1", "pawl", "steps_per_s"}, {"W1", "floor", "steps_per_s"}, {"W1", "pawl", "client_peak_memory_mib"},
		{"W2", "pawl", "step_to_step_by_commit"}, {"W3", "floor", "runs_per_s"}, {"W4", "pawl", "last_100_by_first_100"},
		{"W5", "pawl", "round_trips_per_min"}, {"W6", "pawl", "all_done_s"}, {"W6", "pawl", "repeated_transitions"},
		{"W7", "pawl", "wal_bytes_per_step"}, {"W7", "pawl", "disk_bytes_per_step"}, {"W7", "pawl", "round_trips_per_step"},
		{"W8", "pawl", "throughput_by_empty"}, {"W9", "pawl", "held_by_free"}, {"W10", "pawl", "steps_per_s"},
		{"W11", "pawl", "steps_per_s"}, {"W12", "pawl", "recovered_per_s"}, {"W12", "floor", "during_by_before"}, {"W13", "pawl", "steps_per_s"},
	} {
		found := false
		for _, row := range r.Table.Rows {
			if row.Workload == must.workload && row.System == must.system && row.Metric.Name == must.metric {
				found = true
				if row.Median() < 0 {
					t.Errorf("%v is %v", must, row.Median())
				}
			}
		}
		if !found {
			t.Errorf("%v is not in the table", must)
		}
	}
	var text, figures bytes.Buffer
	r.Write(&text)
	if err := r.Table.WriteJSON(&figures); err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	if err := json.Unmarshal(figures.Bytes(), &all); err != nil || len(all) < 50 {
		t.Errorf("%d figures, %v", len(all), err)
	}
	t.Logf("took %v\n%s", r.Took.Round(time.Second), text.String())
}

// TestMetricsAreExplained: the README tells what each figure means.
func TestMetricsAreExplained(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range report.Metrics {
		if line := "| " + m.Name + " | " + m.Unit + " | " + m.Means + " |"; !bytes.Contains(text, []byte(line)) {
			t.Errorf("README.md has no line %q", line)
		}
	}
}
