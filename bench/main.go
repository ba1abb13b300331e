// Command bench measures Pawl against what PostgreSQL can do at best, and
// against other libraries, on a PostgreSQL of its own. README.md tells how.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/pawlworks/pawl/bench/internal/child"
	"github.com/pawlworks/pawl/bench/internal/runner"
	"github.com/pawlworks/pawl/bench/internal/workload"
)

func main() {
	child.Main(workload.Do)
	var o runner.Options
	flag.IntVar(&o.Rounds, "rounds", 3, "how often each measurement is made")
	flag.BoolVar(&o.Quick, "quick", false, "about two minutes: W1, W2, W3 and W7, one round, smaller numbers, without gue")
	flag.StringVar(&o.Only, "only", "", "these workloads alone, such as W1,W7")
	flag.StringVar(&o.Systems, "systems", "", "these systems alone, such as pawl,floor")
	flag.Float64Var(&o.Scale, "scale", 1, "of numbers and times: 0.1 tries a long workload quickly")
	flag.IntVar(&o.Slots, "slots", 500, "steps that a process runs at once, where throughput is measured")
	flag.IntVar(&o.Conns, "conns", 8, "connections of each process's pool")
	flag.StringVar(&o.Profile, "profile", "", "write the client's profiles (CPU, allocations) of W1, W10 and W13 into this directory")
	jsonFile := flag.String("json", "", "write the figures to this file")
	results := flag.String("results", "", "write settings, tables and notes to this file, as Markdown")
	flag.Parse()
	if flag.NArg() > 0 || o.Rounds < 1 || o.Scale <= 0 || o.Slots < 1 || o.Conns < 4 {
		fmt.Fprintln(os.Stderr, "bench takes flags alone; rounds and slots are at least 1, conns at least 4, scale above 0")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, *jsonFile, *results); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o runner.Options, jsonFile, results string) error {
	r, err := runner.Run(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	r.Write(os.Stdout)
	if jsonFile != "" {
		if err := write(jsonFile, r.Table.WriteJSON); err != nil {
			return err
		}
	}
	if results != "" {
		if err := write(results, func(w io.Writer) error {
			fmt.Fprint(w, "# Results\n\nThe last full table. [README.md](README.md) says what each figure means and how it is made.\n\n")
			r.Write(w)
			return nil
		}); err != nil {
			return err
		}
	}
	if len(r.Failed) > 0 {
		return fmt.Errorf("%d measurements failed; see the notes", len(r.Failed))
	}
	return nil
}

func write(name string, to func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(to(f), f.Close())
}
