package provider_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pawlworks/pawl/examples/order/provider"
)

// What a provider has answered it knows after kill -9, and the key is
// remembered too.
func TestKilledProviderRemembers(t *testing.T) {
	t.Parallel()
	ledger := filepath.Join(t.TempDir(), "ledger.jsonl")
	start := func() (*provider.Process, *client) {
		cmd := exec.Command(os.Args[0], "provider", "-tied", "-ledger", ledger)
		cmd.Stderr = os.Stderr
		p, err := provider.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		c := &client{t: t, url: p.URL}
		t.Cleanup(c.http.CloseIdleConnections)
		return p, c
	}
	p, c := start()
	var (
		all      sync.WaitGroup
		mu       sync.Mutex
		answered = map[string]string{}
		count    atomic.Int64
	)
	for w := range 8 {
		all.Go(func() {
			for n := 0; ; n++ {
				order := fmt.Sprintf("order-%d-%d", w, n)
				r := c.charge(order)
				if r.status != 201 {
					return
				}
				mu.Lock()
				answered[order] = r.body
				mu.Unlock()
				count.Add(1)
			}
		})
	}
	until(t, "some charges", func() bool { return count.Load() > 100 })
	p.Kill()
	all.Wait()

	p, c = start()
	charges := c.ledger().Of(provider.Charge)
	for order, body := range answered {
		if len(charges[order]) != 1 {
			t.Errorf("%s was answered and is in the ledger %d times", order, len(charges[order]))
		}
		if r := c.charge(order); !r.replayed || r.body != body {
			t.Errorf("%s was answered with %s, and is now with %+v", order, body, r)
		}
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

func TestTornLedger(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	whole := `{"seq":7,"id":"charge-000007","kind":"charge","key":"key-order-1","order":"order-1","customer":"customer-1","cents":100,"at":"2024-01-01T00:00:00Z"}` + "\n"
	if err := os.WriteFile(path, []byte(whole+whole[:40]), 0o600); err != nil {
		t.Fatal(err)
	}
	c := open(t, provider.Options{Ledger: path})
	c.charged("order-1", 1)
	c.answered(c.charge("order-2"), 201)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.SplitAfter(string(text), "\n"); len(lines) != 3 || lines[0] != whole || !strings.Contains(lines[1], `"seq":8`) {
		t.Errorf("the ledger is now\n%s", text)
	}
}

// A bad line in the middle is no kill's doing: nobody guesses over it.
func TestSpoiltLedgerIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	if err := os.WriteFile(path, []byte("{}\nspoilt\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := provider.Open(provider.Options{Ledger: path}); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("the error is %v, want one that names the line", err)
	}
}

func TestMainRefuses(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-fault", "explode"},
		{"-addr", "nowhere:no", "-ledger", filepath.Join(t.TempDir(), "ledger.jsonl")},
		{"-ledger", t.TempDir()},
	} {
		var said strings.Builder
		if code := provider.Main(args, strings.NewReader(""), &said, &said); code == 0 || said.Len() == 0 {
			t.Errorf("%v: code %d, %q", args, code, said.String())
		}
	}
}
