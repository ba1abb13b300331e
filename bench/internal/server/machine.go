package server

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/pawlworks/pawl/bench/internal/meter"
)

// Machine is what the figures were made on.
type Machine struct {
	CPUs        int
	Model       string
	Kernel      string
	Go          string
	PostgreSQL  string
	SyncMs      float64 // median of a data sync of 8 KiB in the server's file system; 0: not measured
	CommitMs    float64 // median of one INSERT of one row, committed by itself
	CommitP99Ms float64
}

// Machine measures.
func (s *Server) Machine(ctx context.Context) (Machine, error) {
	m := Machine{CPUs: runtime.NumCPU(), Model: cpuModel(), Kernel: kernel(), Go: runtime.Version(), PostgreSQL: s.Version}
	var data string
	if err := s.Admin.QueryRow(ctx, "SELECT current_setting('data_directory')").Scan(&data); err != nil {
		return m, err
	}
	m.SyncMs = syncTime(data)
	var commits meter.Times
	if err := Commits(ctx, s.Admin.Exec, 300, &commits); err != nil {
		return m, err
	}
	m.CommitMs, m.CommitP99Ms = commits.Quantile(0.5), commits.Quantile(0.99)
	return m, nil
}

// syncTime is how long it takes to write and sync a page beside the server's
// data; 0 if this process may not write there.
func syncTime(data string) float64 {
	f, err := os.CreateTemp(filepath.Dir(data), "sync")
	if err != nil {
		return 0
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := make([]byte, 8192)
	// As WAL is: written over, in a file that has its size.
	if _, err := f.Write(make([]byte, 1<<20)); err != nil || f.Sync() != nil {
		return 0
	}
	var times meter.Times
	for i := range 200 {
		began := time.Now()
		if _, err := f.WriteAt(page, int64(i%128)*8192); err != nil || datasync(f) != nil {
			return 0
		}
		times.Add(time.Since(began))
	}
	return times.Quantile(0.5)
}

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if name, value, ok := strings.Cut(in.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return fmt.Sprintf("%s %s", runtime.GOOS, strings.TrimSpace(string(b)))
}
