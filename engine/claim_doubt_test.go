package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/steps"
)

// TestCutAtClaimWhileAStepRuns: what is handed back after a claim whose answer
// was lost is what nobody here works on. The step that runs keeps its lease.
// The look at what stands under the owner may be lost too, and is taken again.
func TestCutAtClaimWhileAStepRuns(t *testing.T) {
	t.Parallel()
	for _, lookLost := range []bool{false, true} {
		t.Run(fmt.Sprintf("the look is lost %v", lookLost), func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			var calls, claims, looks atomic.Int64
			began, arrived := make(chan bool, 10), make(chan bool, 1)
			gate, started := make(chan struct{}), make(chan struct{})
			open := sync.OnceFunc(func() { close(gate) })
			b := newCutBed(t, cutFlow.Of(steps.New("step", func(_ context.Context, n int) (int, error) {
				if n == 1 {
					return n, nil
				}
				calls.Add(1)
				began <- true
				<-gate
				return n, nil
			})))
			work(t, b.e)
			let := sync.OnceFunc(func() { close(started) })
			t.Cleanup(func() { open(); let() }) // before the worker is waited for
			long := b.start()
			effSignal(t, "the step", began)
			b.proxy.OnExecute(func(sql string) pgproxy.Action {
				switch {
				case effStatement(sql, "Claim") && claims.Add(1) == 1:
					arrived <- true
					<-started
					return pgproxy.CutAfter
				case effStatement(sql, "LeasedTo") && looks.Add(1) == 1 && lookLost:
					return pgproxy.CutBefore
				}
				return pgproxy.Pass
			})
			b.start(engine.After(time.Hour)) // wakes the claimer, which finds nothing
			effSignal(t, "a claim", arrived)
			short, err := engine.Start(ctx, b.e, cutFlow, 1)
			if err != nil {
				t.Fatal(err)
			}
			let()
			if out := b.finish(short); out != 1 {
				t.Errorf("got %d", out)
			}
			if events := effEvents(effGet(t, b.e, short.ID)); fmt.Sprint(events) != "[handed_back completed]" {
				t.Errorf("the one that was granted unheard: %v", events)
			}
			open()
			if out := b.finish(long); out != 0 || calls.Load() != 1 {
				t.Errorf("got %d after %d calls", out, calls.Load())
			}
			b.sequence(long, 1)
			b.fired(pgproxy.CutAfter, 1)
		})
	}
}
