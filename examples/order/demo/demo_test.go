package demo_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawlworks/pawl/examples/order/demo"
	"github.com/pawlworks/pawl/internal/pgtest"
)

func TestMain(m *testing.M) {
	if code, ok := demo.Child(); ok {
		os.Exit(code)
	}
	os.Exit(pgtest.Main(m))
}

// Running again on the same database starts nothing anew, whatever is asked
// for, and the books still agree.
func TestRunAgain(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	pool := pgtest.Pool(t)          // first, because the server's own place is in the temporary directory too
	t.Setenv("TMPDIR", t.TempDir()) // where the ledger goes when nobody says
	var before demo.Summary
	for n, test := range []struct {
		orders int
		want   string
	}{
		{30, "started: 30 orders, 0 of them earlier"},
		{10, "started: 30 orders, 30 of them earlier"},
		{40, "started: 40 orders, 30 of them earlier"},
	} {
		var out strings.Builder
		s, err := demo.Run(t.Context(), demo.Options{Pool: pool, Out: &out, Orders: test.orders, Faults: true})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), test.want) {
			t.Errorf("run %d said\n%s\nwant %q", n, &out, test.want)
		}
		if s.Runs != max(test.orders, 30) || s.Succeeded+s.Declined != s.Runs {
			t.Errorf("run %d: the summary is %+v", n, s)
		}
		if s.Took = 0; n == 1 && s != before {
			t.Errorf("the summary is now %+v, was %+v", s, before)
		}
		before = s
	}
	ledgers, err := filepath.Glob(filepath.Join(os.TempDir(), "pawl-order-ledger-*"))
	if err != nil || len(ledgers) != 1 {
		t.Fatalf("the ledgers are %v, %v; want one", ledgers, err)
	}
	if err := os.Remove(ledgers[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := demo.Run(t.Context(), demo.Options{Pool: pool}); err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("without its ledger: %v, want an error that says so", err)
	}
}

func TestRunWithAGivenLedger(t *testing.T) {
	t.Parallel()
	pool, ledger := pgtest.Pool(t), filepath.Join(t.TempDir(), "ledger.jsonl")
	s, err := demo.Run(t.Context(), demo.Options{Pool: pool, Orders: 5, Ledger: ledger})
	if err != nil || s.Succeeded != 5 || s.Reconciled != 0 {
		t.Errorf("without faults: %+v, %v", s, err)
	}
	if _, err := os.Stat(ledger); err != nil {
		t.Error(err)
	}
	// Another ledger knows nothing of these orders: the books can't agree.
	other := filepath.Join(t.TempDir(), "ledger.jsonl")
	if _, err := demo.Run(t.Context(), demo.Options{Pool: pool, Orders: 5, Ledger: other}); err == nil || !strings.Contains(err.Error(), "never charged") {
		t.Errorf("with another ledger: %v, want books that do not agree", err)
	}
}
