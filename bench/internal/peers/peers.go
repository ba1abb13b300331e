// Package peers lists the contestants that are other people's work.
package peers

import (
	"slices"

	"github.com/pawlworks/pawl/bench/internal/peers/dbos"
	"github.com/pawlworks/pawl/bench/internal/peers/gue"
	"github.com/pawlworks/pawl/bench/internal/peers/river"
	"github.com/pawlworks/pawl/bench/internal/system"
)

// All are the variants of all peers.
func All() []system.Contestant {
	return slices.Concat(river.Contestants(), dbos.Contestants(), gue.Contestants())
}
