// Command hello is the smallest whole program: a workflow of two steps, started, worked on and waited for.
package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pglocal" // a server for trying it out, in this repository alone
	"github.com/pawlworks/pawl/steps"
)

var Greet = steps.Declare[string, string]("greet") // the contract: all that a caller needs

func upper(_ context.Context, name string) (string, error) { return strings.ToUpper(name), nil }
func greet(_ context.Context, name string) (string, error) { return "hello " + name, nil }

func main() {
	ctx, stop := context.WithCancel(context.Background())
	server := must(pglocal.Open(ctx, pglocal.Options{}))
	defer server.Close()
	pool := must(pgxpool.New(ctx, server.URL))
	must(0, engine.Migrate(ctx, pool))

	def := Greet.Define(func(f *steps.Flow, name steps.Ref[string]) steps.Ref[string] {
		return steps.New("greet", greet).Do(f, steps.New("upper", upper).Do(f, name))
	})
	eng := must(engine.New(ctx, pool, engine.Config{Workflows: []steps.Definition{def}}))
	worked := make(chan error)
	go func() { worked <- eng.Work(ctx) }()

	run := must(engine.Start(ctx, eng, Greet, "world", engine.Key("greeting-1")))
	fmt.Println(must(run.Wait(ctx)))
	stop() // Work drains and returns
	must(0, <-worked)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
