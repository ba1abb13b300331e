package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/steps"
)

// awaits polls for a state, as a page that people look at does.
func awaits(ctx context.Context, eng *engine.Engine, id string, want engine.State) engine.RunInfo {
	for {
		info, err := eng.Get(ctx, id)
		if err != nil {
			log.Fatal(err)
		}
		if info.State == want {
			return info
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A payment whose answer was lost, and nobody can be asked by a program: a
// person looks, and says so. The run goes on with the output given.
func ExampleEngine_Resolve() {
	ctx, stop := context.WithCancel(context.Background())
	pool, closePool := database(ctx)
	defer closePool()
	wire := steps.Declare[int, string]("wire-transfer")
	send := steps.New("send", func(ctx context.Context, cents int) (string, error) {
		return "", errors.New("the line went dead") // did it arrive?
	}, steps.Manual(), steps.Owner("treasury"))
	eng, err := engine.New(ctx, pool, engine.Config{Workflows: []steps.Definition{wire.Of(send)}})
	if err != nil {
		log.Fatal(err)
	}
	worked := make(chan error)
	go func() { worked <- eng.Work(ctx) }()

	run, err := engine.Start(ctx, eng, wire, 500)
	if err != nil {
		log.Fatal(err)
	}
	info := awaits(ctx, eng, run.ID, engine.Uncertain)
	fmt.Println(info.Step, "is uncertain;", info.Owner, "must look")

	by := engine.By{Actor: "ann@treasury", Reason: "the bank was asked"}
	if err := eng.Resolve(ctx, run.ID, by, engine.ItHappened("receipt 7", "statement of Monday, line 3")); err != nil {
		log.Fatal(err)
	}
	fmt.Println(run.Wait(ctx))
	stop()
	<-worked
	// Output:
	// send is uncertain; treasury must look
	// receipt 7 <nil>
}

// A run whose step is dead is kept; when the cause is mended, a person has the
// step tried again, here with a corrected input.
func ExampleEngine_Replay() {
	ctx, stop := context.WithCancel(context.Background())
	pool, closePool := database(ctx)
	defer closePool()
	deliver := steps.Declare[string, string]("deliver")
	drive := steps.New("drive", func(_ context.Context, to string) (string, error) {
		if to == "" {
			return "", steps.Permanent("NO_ADDRESS", errors.New("nobody knows where"))
		}
		return "left at " + to, nil
	})
	eng, err := engine.New(ctx, pool, engine.Config{Workflows: []steps.Definition{deliver.Of(drive)}})
	if err != nil {
		log.Fatal(err)
	}
	worked := make(chan error)
	go func() { worked <- eng.Work(ctx) }()

	run, err := engine.Start(ctx, eng, deliver, "", engine.Tags("north"))
	if err != nil {
		log.Fatal(err)
	}
	var failed *engine.FailedError
	if _, err := run.Wait(ctx); errors.As(err, &failed) {
		fmt.Println(failed.Step, failed.Code)
	}
	dead, err := eng.List(ctx, engine.Filter{States: []engine.State{engine.Failed}, Code: "NO_ADDRESS", Tags: []string{"north"}})
	if err != nil {
		log.Fatal(err)
	}
	by := engine.By{Actor: "ben@desk", Reason: "the customer called"}
	for _, r := range dead {
		if err := eng.Replay(ctx, r.ID, by, engine.WithInput("Main Street 5")); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(run.Wait(ctx))
	stop()
	<-worked
	// Output:
	// drive NO_ADDRESS
	// left at Main Street 5 <nil>
}

// A run is cancelled; what it waits for is given up at once.
func ExampleEngine_Cancel() {
	ctx := context.Background()
	pool, closePool := database(ctx)
	defer closePool()
	eng, err := engine.New(ctx, pool, engine.Config{Workflows: []steps.Definition{greeting()}})
	if err != nil {
		log.Fatal(err)
	}
	run, err := engine.Start(ctx, eng, greet, "world", engine.After(24*time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	if err := eng.Cancel(ctx, run.ID, engine.By{Actor: "ann@desk", Reason: "nobody is there"}); err != nil {
		log.Fatal(err)
	}
	_, err = run.Wait(ctx)
	fmt.Println(errors.Is(err, engine.ErrCancelled))
	// Output: true
}

// A step in the caller's own tables, by a transaction that commits together
// with its completion; and a long step that saves its position with each chunk.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	pool, closePool := database(ctx)
	defer closePool()
	if _, err := pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS number (n int)"); err != nil {
		log.Fatal(err)
	}
	var chunks atomic.Int32
	fill := steps.NewLong("fill", func(ctx context.Context, upTo int, cur *steps.Cursor[int]) (int, error) {
		for n := cur.At(); n < upTo; { // an attempt that goes on starts here
			next := min(n+100, upTo)
			err := cur.CommitTx(ctx, next, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO number SELECT generate_series($1::int, $2::int)", n+1, next)
				return err
			})
			if err != nil {
				return 0, err
			}
			n = next
			chunks.Add(1)
		}
		return upTo, nil
	})
	sum := steps.NewTx("sum", func(ctx context.Context, tx pgx.Tx, _ int) (total int, err error) {
		err = tx.QueryRow(ctx, "WITH gone AS (DELETE FROM number RETURNING n) SELECT sum(n) FROM gone").Scan(&total)
		return total, err
	})
	add := steps.Declare[int, int]("add-up")
	eng, err := engine.New(ctx, pool, engine.Config{Workflows: []steps.Definition{
		add.Define(func(f *steps.Flow, upTo steps.Ref[int]) steps.Ref[int] { return sum.Do(f, fill.Do(f, upTo)) }),
	}})
	if err != nil {
		log.Fatal(err)
	}
	worked := make(chan error)
	go func() { worked <- eng.Work(ctx) }()
	run, err := engine.Start(ctx, eng, add, 1000)
	if err != nil {
		log.Fatal(err)
	}
	total, err := run.Wait(ctx)
	fmt.Println(total, err, "in", chunks.Load(), "chunks")
	stop()
	<-worked
	// Output: 500500 <nil> in 10 chunks
}
