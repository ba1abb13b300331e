package probe

import (
	"crypto/rand"
	"runtime/debug"
	"strconv"
	"sync/atomic"
)

// Version is that of a module in this program.
func Version(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path != module {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		return m.Version
	}
	return "unknown"
}

var (
	process = rand.Text()[:8]
	runs    atomic.Int64
)

// RunID is a name for a run that no other process gives.
func RunID() string { return process + "-" + strconv.FormatInt(runs.Add(1), 36) }

// Batches splits n into parts of at most size, in order.
func Batches(n, size int, do func(n int) error) error {
	for n > 0 {
		part := min(n, size)
		if err := do(part); err != nil {
			return err
		}
		n -= part
	}
	return nil
}
