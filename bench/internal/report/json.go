package report

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// WriteJSON writes an array of {workload, system, variant, metric, unit,
// median, min, max, rounds}. The variant is the system's and the situation.
func (t *Table) WriteJSON(w io.Writer) error {
	type figure struct {
		Workload string  `json:"workload"`
		System   string  `json:"system"`
		Variant  string  `json:"variant"`
		Metric   string  `json:"metric"`
		Unit     string  `json:"unit"`
		Median   float64 `json:"median"`
		Min      float64 `json:"min"`
		Max      float64 `json:"max"`
		Rounds   int     `json:"rounds"`
	}
	figures := []figure{}
	for _, r := range t.Rows {
		figures = append(figures, figure{r.Workload, r.System, strings.Trim(r.Variant+", "+r.Situation, ", "), r.Metric.Name, r.Metric.Unit,
			r.Median(), slices.Min(r.Rounds), slices.Max(r.Rounds), len(r.Rounds)})
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(figures)
}
