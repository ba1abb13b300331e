package engine

import (
	"context"

	"github.com/pawlworks/pawl/internal/doctor"
)

// Violation is something that can't be if every guarantee holds: a bug of
// Pawl's, or a hand in its tables.
type Violation = doctor.Violation

// Doctor returns all violations that it finds, in one snapshot, at most a
// thousand. It reads everything and changes nothing; a large history takes minutes.
func (e *Engine) Doctor(ctx context.Context) ([]Violation, error) {
	return doctor.Check(ctx, e.pool)
}
