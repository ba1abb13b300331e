package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// A thousand cancelled runs whose effects are waited for must not hide a later
// cancellation.
func TestFaultManyCancelled(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	slow, plain := steps.Declare[int, int]("slow"), steps.Declare[int, int]("plain")
	begun, told, gate := make(chan bool, 2000), make(chan bool, 1), make(chan bool)
	e := effEngine(t, pool, engine.Config{Slots: 1100, Workflows: []steps.Definition{
		slow.Of(steps.New("pay", func(context.Context, int) (int, error) { begun <- true; <-gate; return 1, nil }, steps.Manual())),
		plain.Of(steps.New("p", func(ctx context.Context, n int) (int, error) {
			begun <- true
			select {
			case <-ctx.Done():
				told <- true
			case <-gate:
			}
			return n, ctx.Err()
		}))}})
	work(t, e)
	if _, err := engine.StartMany(context.Background(), e, slow, make([]int, 1000)); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		effSignal(t, "a payment", begun)
	}
	r := effStart(t, e, plain, 1)
	effSignal(t, "the plain step", begun)
	effExec(t, pool, "UPDATE pawl.run SET cancelling = true WHERE workflow = 'slow'")
	if err := e.Cancel(context.Background(), r.ID, effPerson); err != nil {
		t.Fatal(err)
	}
	select {
	case <-told:
	case <-time.After(15 * time.Second):
		t.Error("15 s after Cancel the step has not been told")
	}
	close(gate)
}
