package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// A pool that is closed under Work ends it with an error, rather than leaving
// it trying for ever. The step under way is another worker's then.
func TestClosedPoolEndsWork(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	inside, release := make(chan struct{}), make(chan struct{})
	hold := steps.Declare[int, int]("hold")
	def := hold.Of(steps.New("hold", func(ctx context.Context, n int) (int, error) {
		close(inside)
		select {
		case <-release:
		case <-ctx.Done():
		}
		return n, ctx.Err()
	}))
	e, err := engine.New(t.Context(), pool, engine.Config{Workflows: []steps.Definition{def}, Session: 500 * time.Millisecond, Drain: time.Second, NoListen: true})
	if err != nil {
		t.Fatal(err)
	}
	worked := make(chan error, 1)
	go func() { worked <- e.Work(context.Background()) }()
	if _, err := engine.Start(t.Context(), e, hold, 1); err != nil {
		t.Fatal(err)
	}
	<-inside
	pool.Close()
	select {
	case err := <-worked:
		if err == nil {
			t.Error("Work ended without an error")
		}
	case <-time.After(60 * time.Second):
		t.Fatal("Work goes on with a closed pool")
	}
	close(release)
}
