package meter

import (
	"slices"
	"sync"
	"time"
)

// Times gathers durations. The zero value is empty and ready.
type Times struct {
	mu sync.Mutex
	ds []time.Duration
}

// Add adds one.
func (t *Times) Add(d time.Duration) {
	t.mu.Lock()
	t.ds = append(t.ds, d)
	t.mu.Unlock()
}

// Len is how many there are.
func (t *Times) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.ds)
}

// Quantile is the time that a share q of them does not exceed, in milliseconds
// (nearest rank).
func (t *Times) Quantile(q float64) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ds) == 0 {
		return 0
	}
	ds := slices.Sorted(slices.Values(t.ds))
	rank := int(q*float64(len(ds)) + 0.999999)
	return Ms(ds[min(max(rank, 1), len(ds))-1])
}

// Ms is a duration in milliseconds.
func Ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
