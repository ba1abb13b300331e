// Package alerts tests what is in ops with Prometheus' own parser and engine, in a
// module of its own, so that nobody who uses Pawl gets Prometheus.
package alerts

import (
	"os"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// rule is an alert as it is in the file.
type rule struct {
	Alert       string
	Expr        string
	For         model.Duration
	Labels      map[string]string
	Annotations map[string]string
}

func rules(t testing.TB) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	f, err := os.Open("../../ops/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// TestRules: each names only metrics and labels that there are, and has a
// severity, a summary and a paragraph of the runbook.
func TestRules(t *testing.T) {
	runbook, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range rules(t) {
		if seen[r.Alert] {
			t.Errorf("%s is there twice", r.Alert)
		}
		seen[r.Alert] = true
		expr := parse(t, r.Alert, r.Expr)
		named := false
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			if _, ok := n.(*parser.VectorSelector); ok {
				named = true
			}
			return nil
		})
		if !named || r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
			t.Errorf("%s names no metric, or lacks a severity or summary", r.Alert)
		}
		if want := "docs/runbook.md#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want || !strings.Contains(string(runbook), "\n### "+r.Alert+"\n") {
			t.Errorf("%s has no paragraph in the runbook, or does not name it: %q", r.Alert, r.Annotations["runbook"])
		}
		if _, ok := cases[r.Alert]; !ok {
			t.Errorf("nothing shows that %s fires", r.Alert)
		}
	}
	for line := range strings.SplitSeq(string(runbook), "\n") {
		if name, ok := strings.CutPrefix(line, "### Pawl"); ok && !seen["Pawl"+name] {
			t.Errorf("the runbook tells of Pawl%s, which there is not", name)
		}
	}
}

// parse reads an expression, and holds it to what there is.
func parse(t testing.TB, where, text string) parser.Expr {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	there := metrics(t)
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			by, ok := there[n.Name]
			if !ok {
				t.Errorf("%s: there is no metric %s", where, n.Name)
			}
			for _, m := range n.LabelMatchers {
				if m.Name != labels.MetricName && !by[m.Name] && !ofTarget[m.Name] {
					t.Errorf("%s: %s has no label %s", where, n.Name, m.Name)
				}
			}
		case *parser.AggregateExpr:
			parser.Inspect(n.Expr, func(inner parser.Node, _ []parser.Node) error {
				if s, ok := inner.(*parser.VectorSelector); ok && !n.Without {
					for _, l := range n.Grouping {
						if !there[s.Name][l] && !ofTarget[l] {
							t.Errorf("%s: %s has no label %s", where, s.Name, l)
						}
					}
				}
				return nil
			})
		}
		return nil
	})
	return expr
}

// ofTarget are labels that Prometheus itself adds.
var ofTarget = map[string]bool{"job": true, "instance": true}
