// Package contestants lists who is measured.
package contestants

import (
	"slices"

	"github.com/pawlworks/pawl/bench/internal/floor"
	"github.com/pawlworks/pawl/bench/internal/pawl"
	"github.com/pawlworks/pawl/bench/internal/peers"
	"github.com/pawlworks/pawl/bench/internal/system"
)

// All are all contestants: Pawl, the floor, the peers.
func All() []system.Contestant {
	all := slices.Concat([]system.Contestant{pawl.Contestant, floor.Contestant}, peers.All())
	for i, c := range all {
		// DBOS's direct runs begin where they are started.
		all[i].Direct = c.Direct || c.Name == "dbos" && c.Variant == "direct"
	}
	return all
}

// Find finds one.
func Find(name, variant string) (system.Contestant, bool) {
	for _, c := range All() {
		if c.Name == name && c.Variant == variant {
			return c, true
		}
	}
	return system.Contestant{}, false
}
