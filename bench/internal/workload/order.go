package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/pawlworks/pawl/bench/internal/child"
	"github.com/pawlworks/pawl/bench/internal/contestants"
	"github.com/pawlworks/pawl/bench/internal/report"
)

// Order tells a process of the bench what to do.
type Order struct {
	Workload   string
	Case       Case
	Worker     string // which of the workload's workers to be; "": the one that measures
	Contestant string // name
	Variant    string
	URL        string // of the database
	AdminURL   string // of database "postgres"
	Postmaster int    // process id
	Statements bool   // pg_stat_statements is loaded
	Scale      float64
	PeerScale  float64 // on top, for peers in W1, W3 and W7
	Quick      bool
	Slots      int    // where throughput is measured
	Conns      int    // of the pool
	Journal    string // W6: where bodies that begin are written down
	Run        int    // W6, W11: how many runs there are
	Lease      time.Duration
	Profile    string // file for a CPU profile of what is timed
}

// Report is what comes back.
type Report struct {
	Values []report.Value
	Notes  []string
}

// Process is a process that carries out an order.
type Process = child.Child[Report]

// Do carries out an order.
func Do(ctx context.Context, o Order, talk *child.Talk) (Report, error) {
	w, ok := Find(o.Workload)
	if !ok {
		return Report{}, fmt.Errorf("there is no workload %q", o.Workload)
	}
	c, ok := contestants.Find(o.Contestant, o.Variant)
	if !ok {
		return Report{}, fmt.Errorf("there is no contestant %q %q", o.Contestant, o.Variant)
	}
	do := w.Measure
	if o.Worker != "" {
		do = w.Workers[o.Worker]
	}
	limit := 2*time.Minute + w.Limit
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	e, err := newEnv(ctx, o, c, talk)
	if err != nil {
		return Report{}, err
	}
	defer e.close()
	err = do(ctx, e)
	return e.report, err
}
