// Package runner runs the workloads: every measurement a process and a
// database of its own, the contestants by turns.
package runner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pawlworks/pawl/bench/internal/contestants"
	"github.com/pawlworks/pawl/bench/internal/system"
	"github.com/pawlworks/pawl/bench/internal/workload"
)

// Options say what is run.
type Options struct {
	Rounds    int
	Quick     bool
	Only      string  // workloads, by commas; "": all
	Systems   string  // contestants, by commas; "": all
	Scale     float64 // of numbers and times
	PeerScale float64 // further, of the peers' numbers in W1, W3 and W7
	Slots     int     // where throughput is measured
	Conns     int     // of each process's pool
	Profile   string  // directory for profiles of W1, W10 and W13; "": none
	Trial     bool    // do workloads that have several alike cases with one of them only
}

// skips tells whether a trial does without a case: what its others show as well.
func (o *Options) skips(w workload.Workload, i int, s system.Contestant) bool {
	if !o.Trial {
		return false
	}
	switch w.Name {
	case "W4", "W5", "W9", "W10":
		return i > 0
	case "W13":
		return i < 3
	case "W11":
		return i != 1
	case "W8":
		return i > 0 && s.Name == "floor"
	}
	return false
}

// Defaults fills in what is not said, and what -quick means.
func (o *Options) Defaults() {
	if o.Quick {
		o.Rounds = 1
		if o.Only == "" {
			o.Only = "W1,W2,W3,W7"
		}
		if o.Systems == "" {
			o.Systems = "pawl,floor,river,dbos"
		}
		o.PeerScale = 0.1
	}
	if o.PeerScale == 0 {
		o.PeerScale = 1
	}
}

func (o *Options) workloads() (ws []workload.Workload, err error) {
	if o.Only == "" {
		return workload.All, nil
	}
	for name := range strings.SplitSeq(o.Only, ",") {
		w, ok := workload.Find(strings.ToUpper(strings.TrimSpace(name)))
		if !ok {
			return nil, fmt.Errorf("there is no workload %q", name)
		}
		ws = append(ws, w)
	}
	return ws, nil
}

func (o *Options) contestants() (cs []system.Contestant, err error) {
	all := contestants.All()
	if o.Systems == "" {
		return all, nil
	}
	var names []string
	for name := range strings.SplitSeq(o.Systems, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		if !slices.ContainsFunc(all, func(c system.Contestant) bool { return c.Name == name }) {
			return nil, fmt.Errorf("there is no system %q", name)
		}
		names = append(names, name)
	}
	for _, c := range all {
		if slices.Contains(names, c.Name) {
			cs = append(cs, c)
		}
	}
	return cs, nil
}
