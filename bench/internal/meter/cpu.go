package meter

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ClientCPU is the processor time that this process has used, user and system.
func ClientCPU() (time.Duration, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0, err
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), nil
}

// tick is the unit of /proc/…/stat; Linux tells every program a hundredth of a second.
const tick = 10 * time.Millisecond

// ServerCPU is the processor time that a postmaster and its children have
// used, those that have ended included.
func ServerCPU(postmaster int) (time.Duration, error) {
	s, err := readStat(fmt.Sprintf("/proc/%d/stat", postmaster))
	if err != nil {
		return 0, err
	}
	sum := s.own + s.waited
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, path := range paths {
		if c, err := readStat(path); err == nil && c.parent == postmaster { // else it has ended meanwhile
			sum += c.own + c.waited
		}
	}
	return time.Duration(sum) * tick, nil
}

type stat struct {
	parent      int
	own, waited int64 // ticks: its own, and its ended children's
}

func readStat(path string) (stat, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return stat{}, err
	}
	// The name, in brackets, may hold anything. Behind it: state, parent, …
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 15 {
		return stat{}, fmt.Errorf("%s is not understood", path)
	}
	var n [5]int64
	for i, f := range []int{1, 11, 12, 13, 14} {
		if n[i], err = strconv.ParseInt(fields[f], 10, 64); err != nil {
			return stat{}, fmt.Errorf("%s is not understood: %w", path, err)
		}
	}
	return stat{int(n[0]), n[1] + n[2], n[3] + n[4]}, nil
}
