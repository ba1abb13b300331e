package engine_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pglocal"
	"github.com/pawlworks/pawl/steps"
)

var greet = steps.Declare[string, string]("greet")

func greeting() steps.Definition {
	trim := steps.New("shorten", func(_ context.Context, name string) (string, error) { return name[:min(len(name), 10)], nil })
	say := steps.New("say", func(_ context.Context, name string) (string, error) { return "hello " + name, nil })
	return greet.Define(func(f *steps.Flow, name steps.Ref[string]) steps.Ref[string] {
		return say.Do(f, trim.Do(f, name))
	})
}

// database is a throw-away PostgreSQL with the schema in it.
func database(ctx context.Context) (*pgxpool.Pool, func()) {
	server, err := pglocal.Open(ctx, pglocal.Options{})
	if err != nil {
		log.Fatal(err)
	}
	pool, err := pgxpool.New(ctx, server.URL)
	if err == nil {
		err = engine.Migrate(ctx, pool)
	}
	if err != nil {
		log.Fatal(err)
	}
	return pool, func() { pool.Close(); server.Close() }
}

// A run from its start to its result.
func ExampleStart() {
	ctx, stop := context.WithCancel(context.Background())
	pool, closePool := database(ctx)
	defer closePool()

	eng, err := engine.New(ctx, pool, engine.Config{Workflows: []steps.Definition{greeting()}})
	if err != nil {
		log.Fatal(err)
	}
	worked := make(chan error)
	go func() { worked <- eng.Work(ctx) }()

	run, err := engine.Start(ctx, eng, greet, "world", engine.Key("greeting-1"))
	if err != nil {
		log.Fatal(err)
	}
	out, err := run.Wait(ctx)
	fmt.Println(out, err)

	stop() // Work drains and returns
	fmt.Println(<-worked)
	// Output:
	// hello world <nil>
	// <nil>
}

// The order and the run that fulfils it are one commit.
func ExampleStartTx() {
	ctx := context.Background()
	pool, closePool := database(ctx)
	defer closePool()
	eng, err := engine.New(ctx, pool, engine.Config{Workflows: []steps.Definition{greeting()}})
	if err != nil {
		log.Fatal(err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// … the rows of your own …
		_, err := engine.StartTx(ctx, eng, tx, greet, "world", engine.Key("greeting-2"), engine.After(time.Hour))
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	run, err := engine.Find(ctx, eng, greet, "greeting-2")
	if err != nil {
		log.Fatal(err)
	}
	info, err := eng.Get(ctx, run.ID)
	fmt.Println(info.State, info.Step, err)
	// Output: scheduled shorten <nil>
}
