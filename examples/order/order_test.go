//go:build unix

package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/examples/order/books"
	"github.com/pawlworks/pawl/examples/order/demo"
	"github.com/pawlworks/pawl/examples/order/orders"
	"github.com/pawlworks/pawl/examples/order/provider"
	"github.com/pawlworks/pawl/internal/pgtest"
)

// workerVariable makes the test binary the worker's process: it is the
// database's URL. The provider's URL comes in providerVariable.
const (
	workerVariable   = "PAWL_TEST_ORDER_DATABASE"
	providerVariable = "PAWL_TEST_ORDER_PROVIDER"
)

func TestMain(m *testing.M) {
	if code, ok := demo.Child(); ok {
		os.Exit(code)
	}
	if url := os.Getenv(workerVariable); url != "" {
		if err := work(url, os.Getenv(providerVariable)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(pgtest.Main(m))
}

// work is what the worker's process does.
func work(database, provider string) error {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(database)
	if err != nil {
		return err
	}
	config.MaxConns = demo.Conns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	s, err := demo.Run(ctx, demo.Options{Pool: pool, Out: os.Stderr, Faults: true, Provider: provider})
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(s))
}

// world is a database and a provider that outlive the workers.
type world struct {
	t        *testing.T
	database string
	ledger   string
	provider *provider.Process
	admin    provider.Admin
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, database: pgtest.Database(t), ledger: filepath.Join(t.TempDir(), "ledger.jsonl")}
	w.startProvider("127.0.0.1:0")
	t.Cleanup(func() {
		if err := w.provider.Stop(); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return w
}

func (w *world) startProvider(addr string) {
	w.t.Helper()
	p, err := demo.Provider(w.ledger, "-addr", addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.provider, w.admin = p, provider.Admin{URL: p.URL}
	if err := w.admin.Switch(w.t.Context(), demo.Faults()...); err != nil {
		w.t.Fatal(err)
	}
}

// killProvider kills the provider and starts it again where it was.
func (w *world) killProvider() {
	w.t.Helper()
	w.provider.Kill()
	w.startProvider(strings.TrimPrefix(w.provider.URL, "http://"))
}

// worker starts a worker's process; its summary can be read from out.
func (w *world) worker() (cmd *exec.Cmd, out io.Reader) {
	w.t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerVariable+"="+w.database, providerVariable+"="+w.admin.URL)
	cmd.Stderr = w.t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, out
}

// charged waits until so many charges are in the ledger.
func (w *world) charged(n int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Minute) // only if it hangs
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		counts, err := w.admin.Counts(ctx)
		if err != nil {
			w.t.Fatal(err)
		}
		if counts[provider.Charge] >= n {
			return
		}
		<-tick.C // ctx ends the call above
	}
}

// All orders, with every fault on, the worker killed twice and the provider
// once in the middle: nothing is charged twice, nothing charged and forgotten.
func TestBooksAgreeAfterKills(t *testing.T) {
	t.Parallel()
	list, err := orders.All()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	for _, part := range []int{len(list) / 4, len(list) / 2} {
		cmd, _ := w.worker()
		w.charged(part)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal("the worker had ended already:", err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the worker ended by itself: %v", err)
		}
	}
	cmd, out := w.worker()
	w.charged(len(list) * 3 / 4)
	w.killProvider()
	var s demo.Summary
	if err := json.NewDecoder(out).Decode(&s); err != nil {
		t.Errorf("the worker's summary: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the worker: %v", err)
	}

	declined := 0
	for _, o := range list {
		if decline := demo.Faults()[0]; decline.Picks(demo.Seed, o.ID, 0) {
			declined++
		}
	}
	if want := len(list) - declined; s.Runs != len(list) || s.Succeeded != want || s.Declined != declined || s.Failed != 0 {
		t.Errorf("the summary is %+v, want %d orders that succeeded and %d that were declined", s, want, declined)
	}
	if declined == 0 || s.Reconciled == 0 {
		t.Errorf("%d declined, %d reconciled: the faults were not on", declined, s.Reconciled)
	}
	w.compare(len(list), declined)
}

// compare compares the books, whatever the worker said of them.
func (w *world) compare(all, declined int) {
	w.t.Helper()
	pool, err := pgxpool.New(w.t.Context(), w.database)
	if err != nil {
		w.t.Fatal(err)
	}
	defer pool.Close()
	ledger, err := w.admin.Ledger(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := books.Compare(w.t.Context(), pool, ledger)
	if err := errors.Join(err, r.Err()); err != nil {
		w.t.Error(err)
	}
	if r.Orders != all || r.Held != declined || r.Charges != all-declined {
		w.t.Errorf("the report is %+v, want %d orders of which %d are held", r, all, declined)
	}
}
