//go:build unix

package pawl_test

import (
	"flag"
	"os"
	"testing"

	"github.com/pawlworks/pawl/internal/pgtest"
)

// The crash suite: what must hold when worker processes die, stand still or
// lose their database at any boundary. The workers are real processes, killed
// with SIGKILL and paused with SIGSTOP; the effects are counted by a real HTTP
// server. After each test pgtest examines the database.
//
//	go test . -run TestCrash -count=1 -v
func TestCrash(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(*testing.T)
	}{
		// What takes longest first; they wait, they don't compute.
		{"KilledThirtyTimes", crashKilledThirtyTimes},
		{"HalfHourLease", crashHalfHourLease},
		{"C6_exhausted", crashExhausted},
		{"C5_heartbeats_lost", crashHeartbeatsLost},
		{"C5_stopped_process", crashStopped},
		{"C1_unique_leases", crashUniqueLeases},
		{"C2_after_claim", crashAfterClaim},
		{"C3_paused", crashPaused},
		{"C4_after_effect", crashAfterEffect},
		{"EveryPoint", crashEveryPoint},
		{"EveryPoint_every_manner", crashMatrix},
		{"EveryQuestion", crashEveryQuestion},
		{"Transactions", crashTransactions},
		{"Terminated", crashTerminated},
		{"C7_locked_row", crashLockedRow},
		{"C9_polling_alone", crashPollingAlone},
	} {
		t.Run(c.name, func(t *testing.T) { t.Parallel(); c.test(t) })
	}
}

// tests at once. They spend their time waiting for leases to lapse, so more of
// them fit on a machine than it has cores.
const testsAtOnce = "8"

func TestMain(m *testing.M) {
	if spec := os.Getenv(workerVariable); spec != "" {
		os.Exit(beWorker(spec))
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", testsAtOnce)
	}
	os.Exit(pgtest.Main(m))
}
