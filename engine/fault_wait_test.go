package engine_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// When Wait has returned its goroutine soon ends.
func TestFaultWaitLingers(t *testing.T) {
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[int, int]("plain")
	e := effEngine(t, pool, engine.Config{NoListen: true, Workflows: []steps.Definition{w.Of(steps.New("p", func(ctx context.Context, n int) (int, error) {
		time.Sleep(5 * time.Second)
		return n, nil
	}))}})
	work(t, e)
	effSuccess(t, e, effStart(t, e, w, 1))
	began := time.Now()
	for {
		b := make([]byte, 1<<20)
		if !strings.Contains(string(b[:runtime.Stack(b, true)]), "waiters).loop") {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if d := time.Since(began); d > 300*time.Millisecond {
		t.Errorf("after the last Wait has returned its goroutine stays for %v", d)
	}
}
