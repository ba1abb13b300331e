package telemetry

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
)

// TestMetricsDocumented: the table tells of each metric, with its unit, and of no other.
func TestMetricsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range Metrics {
		if known[m.Name] {
			t.Errorf("%s is there twice", m.Name)
		}
		known[m.Name] = true
		row := regexp.MustCompile("(?m)^\\| `" + m.Name + "` .*$").FindString(string(page))
		for _, by := range m.By {
			if short := strings.TrimPrefix(string(by), "pawl."); !strings.Contains(row, "`"+string(by)+"`") && !regexp.MustCompile(`[|,] `+short+`[ ,]`).MatchString(row) {
				t.Errorf("docs/metrics.md does not tell that %s is told apart by %s", m.Name, by)
			}
		}
		if m.Unit == "" || m.About == "" || !strings.Contains(string(page), fmt.Sprintf("| `%s` | `%s` | %s |", m.Name, m.Unit, m.Type)) {
			t.Errorf("docs/metrics.md does not tell of the %s %s in %s", m.Type, m.Name, m.Unit)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(pawl\\.[a-z_.]+)`").FindAllStringSubmatch(string(page), -1) {
		if !known[m[1]] {
			t.Errorf("docs/metrics.md tells of %s, which there is not", m[1])
		}
	}
	for _, a := range []attribute.Key{Kind, Holder, ConnState} {
		if !strings.Contains(string(page), "`"+string(a)+"`") {
			t.Errorf("docs/metrics.md does not tell of %s", a)
		}
	}
	source, err := os.ReadFile("metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), "= Metric{"); n != len(Metrics) {
		t.Errorf("%d metrics are declared, and %d listed", n, len(Metrics))
	}
}
