package main

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/steps"
)

// TestShards: what is spread over shards is found, newest first, page by page.
func TestShards(t *testing.T) {
	t.Parallel()
	p := plant(t)
	p.exec("UPDATE pawl.meta SET shards = 7")
	p.e = p.engine(engine.Config{Name: "worker-1", Workflows: []steps.Definition{orderSteps(), mailSteps(), laterSteps()}})
	p.trouble()
	ins := make([]string, 60)
	for i := range ins {
		ins[i] = "declined"
	}
	if _, err := engine.StartMany(context.Background(), p.e, orders, ins); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-step", "charge"}, {"-workflow", "order"}, {"-state", "running"}, {"-since", "1h"}, {"-state", "stranded"}} {
		seen, before := 0, uuid.Max.String()
		for range 20 {
			out := p.reads(exitOK, "list", append(args, "-limit", "7", "-before", before)...)
			for line := range strings.Lines(out) {
				id, _, _ := strings.Cut(line, " ")
				if _, err := uuid.Parse(id); err != nil {
					continue
				}
				if id >= before {
					t.Errorf("%v: %s after %s", args, id, before)
				}
				before, seen = id, seen+1
			}
			if !strings.Contains(out, "older ones") {
				break
			}
		}
		if want := map[string]int{"-step": 63, "-workflow": 64, "-state": 60, "-since": 66}[args[0]]; seen != want {
			t.Errorf("%v: %d runs, not %d", args, seen, want)
		}
	}
	s := p.status()
	if len(s.Unclaimed) != 1 || s.Unclaimed[0].Count != 60 || len(s.Dead) != 2 || len(s.Effects) != 2 || s.Queues[0].Due != 60 || s.Database.Shards != 7 {
		t.Errorf("%+v", s)
	}
	p.says(p.reads(exitOK, "show", "order-1"), "run "+p.runs["declined"])
}
