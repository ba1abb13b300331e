package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// A partition of the history is a day of runs. One that somebody holds locked (an
// index is made, say) must not hold up the runs of other days: a batch that meets
// one is cut by days, and what belongs to it is written apart for a while.

// dayOf is the day, since 1970, in a run's id.
func dayOf(run uuid.UUID) int64 {
	ms := int64(run[0])<<40 | int64(run[1])<<32 | int64(run[2])<<24 | int64(run[3])<<16 | int64(run[4])<<8 | int64(run[5])
	return ms / (24 * time.Hour).Milliseconds()
}

// byDay cuts items by the day of their runs, in order.
func byDay[T any](items []T, run func(T) uuid.UUID) [][]T {
	var days []int64
	groups := map[int64][]T{}
	for _, item := range items {
		d := dayOf(run(item))
		if groups[d] == nil {
			days = append(days, d)
		}
		groups[d] = append(groups[d], item)
	}
	slices.Sort(days)
	var out [][]T
	for _, d := range days {
		out = append(out, groups[d])
	}
	return out
}

// stuck tells whether a statement was given up because of what somebody holds.
func stuck(err error) bool {
	s := sqlState(err)
	return s == "55P03" || s == "57014"
}

// locked is the days that were found so, and until when they are avoided.
type locked struct {
	mu   sync.Mutex
	days map[int64]time.Time
}

const lockedFor = 10 * time.Second

func (l *locked) found(run uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.days == nil {
		l.days = map[int64]time.Time{}
	}
	l.days[dayOf(run)] = time.Now().Add(lockedFor)
}

func (l *locked) has(run uuid.UUID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	until, ok := l.days[dayOf(run)]
	if ok && time.Now().After(until) {
		delete(l.days, dayOf(run))
		return false
	}
	return ok
}

func (l *locked) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.days) > 0
}
