package steps_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/internal/plan"
	"github.com/pawlworks/pawl/steps"
)

var ctx = context.Background()

// word is the contract that most tests define; pass is a step that fits it.
var word = steps.Declare[string, string]("word")

func pass(_ context.Context, s string) (string, error)             { return s, nil }
func passTx(_ context.Context, _ pgx.Tx, s string) (string, error) { return s, nil }
func find(context.Context, string) (steps.Verdict[string], error) {
	return steps.NeverHappened[string](), nil
}

// compile returns the plan of a definition that must be good.
func compile(t *testing.T, d steps.Definition) *plan.Definition {
	t.Helper()
	if err := d.Err(); err != nil {
		t.Fatal(err)
	}
	return d.Plan()
}

// only returns the one step of a definition that must be good.
func only(t *testing.T, d steps.Definition) *plan.Step {
	t.Helper()
	p := compile(t, d)
	if len(p.Nodes) != 1 {
		t.Fatalf("%d nodes, want 1", len(p.Nodes))
	}
	return p.Nodes[0].Step
}

// values serves a run's stored values, the input under plan.Input.
func values(stored map[int]string) plan.Values {
	return func(node int) ([]byte, error) { return []byte(stored[node]), nil }
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}
