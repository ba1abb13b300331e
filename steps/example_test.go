package steps_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/steps"
)

func ExampleWorkflow_Define() {
	type Guest struct{ Name, Room string }
	greet := steps.Declare[Guest, string]("greet-guest") // callers import this

	welcome := steps.New("welcome", func(_ context.Context, name string) (string, error) {
		return "Welcome, " + name, nil
	}, steps.Lease(10*time.Second))
	print := steps.New("print", func(_ context.Context, card string) (string, error) {
		return "printed: " + card, nil
	}, steps.Idempotent(steps.Forever))

	d := greet.Define(func(f *steps.Flow, guest steps.Ref[Guest]) steps.Ref[string] {
		text := welcome.Do(f, steps.Map(guest, func(g Guest) string { return g.Name }))
		return print.Do(f, steps.Map2(guest, text, func(g Guest, t string) string { return t + " to " + g.Room }))
	}, steps.Queue("desk"))
	fmt.Println(d.Workflow(), d.Err())
	// Output: greet-guest <nil>
}

// Everything wrong with a definition is told at once.
func ExampleDefinition_Err() {
	shout := steps.Declare[string, string]("shout")
	upper := steps.New("upper", func(_ context.Context, s string) (string, error) { return strings.ToUpper(s), nil },
		steps.Idempotent(0), steps.Lease(time.Hour), steps.MaxRuntime(time.Minute))
	d := shout.Define(func(f *steps.Flow, in steps.Ref[string]) steps.Ref[string] {
		return upper.Do(f, upper.Do(f, in))
	})
	fmt.Println(d.Err())
	// Output:
	// workflow "shout": step "upper": Idempotent: must be at least a millisecond, is 0s
	// workflow "shout": step "upper": Lease: 1h0m0s is more than MaxRuntime, 1m0s
	// workflow "shout": step "upper": the name is there twice; a step placed twice needs two names
}

func ExampleStep_LookUp() {
	book := steps.Declare[string, string]("book-table")
	tables := map[string]string{} // the restaurant's side, by key

	reserve := steps.New("reserve", func(ctx context.Context, guest string) (string, error) {
		tables[steps.IdempotencyKey(ctx)] = "table 7"
		return "", errors.New("the line went dead") // did it arrive?
	}).LookUp(func(ctx context.Context, guest string) (steps.Verdict[string], error) {
		if table, ok := tables[steps.IdempotencyKey(ctx)]; ok {
			return steps.Happened(table), nil
		}
		return steps.NeverHappened[string](), nil
	}, 10*time.Minute, steps.Retry{Attempts: 20})

	fmt.Println(book.Of(reserve).Err()) // a whole run of such a step: examples/order
	// Output: <nil>
}

// A long step is tested by calling its function.
func ExampleNewCursor() {
	count := func(ctx context.Context, lines []string, cur *steps.Cursor[int]) (int, error) {
		for n := cur.At(); n < len(lines); {
			n++
			if err := cur.CommitTx(ctx, n, func(pgx.Tx) error { return nil }); err != nil {
				return 0, err
			}
		}
		return cur.At(), nil
	}
	cur := steps.NewCursor(1) // an earlier attempt got that far
	fmt.Println(count(context.Background(), []string{"a", "b", "c"}, cur))
	// Output: 3 <nil>
}

func ExampleWithKey() {
	pay := func(ctx context.Context, cents int) (string, error) {
		return fmt.Sprintf("paid %d under %s", cents, steps.IdempotencyKey(ctx)), nil
	}
	fmt.Println(pay(steps.WithKey(context.Background(), "key-1"), 500))
	// Output: paid 500 under key-1 <nil>
}

func ExampleClassify() {
	err := fmt.Errorf("charge: %w", steps.Permanent("DECLINED", errors.New("no money")))
	e := steps.Classify(err)
	fmt.Println(e.Class, e.Code, e.Marked())
	fmt.Println(e)
	// Output:
	// permanent DECLINED true
	// charge: DECLINED: no money
}
