package telemetry

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocumented: the page tells of each name, and of no other.
func TestDocumented(t *testing.T) {
	source, err := os.ReadFile("names.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`= (?:attribute\.Key\()?"([^"]+)"`).FindAllStringSubmatch(string(source), -1) {
		if m[1] != Scope {
			names = append(names, m[1])
		}
	}
	if len(names) < 40 {
		t.Fatalf("only %d names were found", len(names))
	}
	for _, n := range names {
		if !strings.Contains(string(page), "`"+n+"`") {
			t.Errorf("docs/telemetry.md does not tell of %s", n)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+\\.[a-z_.]+)`").FindAllStringSubmatch(string(page), -1) {
		if !slices.Contains(names, m[1]) {
			t.Errorf("docs/telemetry.md tells of %s, which there is not", m[1])
		}
	}
}
