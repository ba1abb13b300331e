package alerts

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ H, W, X, Y int }
	Targets []struct{ RefID, Expr, LegendFormat string }
}

// TestDashboard: every expression can be read and names only what there is, every
// metric is on it, no panel covers another.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../ops/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels     []panel
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	there, shown := metrics(t), map[string]bool{}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %q: no title, or its id %d is another's", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%q is too wide", p.Title)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" {
					t.Fatalf("%q covers %q", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("%q asks for nothing", p.Title)
		}
		for _, q := range p.Targets {
			expr := parse(t, p.Title, strings.ReplaceAll(q.Expr, "$__rate_interval", "1m"))
			by := map[string]bool{}
			parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
				if s, ok := n.(*parser.VectorSelector); ok {
					shown[s.Name] = true
					for l := range there[s.Name] {
						by[l] = true
					}
				}
				return nil
			})
			for _, l := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(q.LegendFormat, -1) {
				if !by[l[1]] {
					t.Errorf("%q: its legend names %s, which is no label of it", p.Title, l[1])
				}
			}
		}
	}
	for _, v := range board.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Definition)
		if m == nil || !there[m[1]][m[2]] || !bytes.Contains(text, []byte("$"+v.Name)) {
			t.Errorf("the variable %s: %q", v.Name, v.Definition)
		}
		shown[m[1]] = true
	}
	for name := range there {
		if strings.HasSuffix(name, "_count") || strings.HasSuffix(name, "_sum") { // of a histogram the buckets are enough
			continue
		}
		if !shown[name] {
			t.Errorf("%s is not on the dashboard", name)
		}
	}
}
