// Package workload holds what is measured, W1 to W13. Each measurement is a
// process of its own, against a database of its own.
package workload

import (
	"context"
	"time"

	"github.com/pawlworks/pawl/bench/internal/system"
)

// Workload is one of the thirteen.
type Workload struct {
	Name    string
	Title   string
	Cases   []Case
	Limit   time.Duration // of one measurement at full scale, on top of two minutes
	Measure func(context.Context, *Env) error
	Workers map[string]func(context.Context, *Env) error // what its further processes do
}

// Case is a situation that is measured apart.
type Case struct {
	Name    string // "" if there is one only
	Payload int    // bytes; 0: 200
	Steps   int    // of a run; 0: 10
	N       int    // whatever the workload counts
	Peers   bool   // peers are measured too
	NoFloor bool   // the floor has nothing of the kind
	NoPawl  bool
	Traces  bool // OpenTelemetry's SDK takes what Pawl tells
	Metrics bool
}

// For tells whether a contestant takes part.
func (c Case) For(s system.Contestant) bool {
	switch s.Name {
	case "pawl":
		return !c.NoPawl
	case "floor":
		return !c.NoFloor
	}
	return c.Peers
}

// All are the workloads, in their order.
var All = []Workload{w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13}

// Find finds a workload by its name.
func Find(name string) (Workload, bool) {
	for _, w := range All {
		if w.Name == name {
			return w, true
		}
	}
	return Workload{}, false
}
