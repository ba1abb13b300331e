package steps_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/internal/plan"
	"github.com/pawlworks/pawl/steps"
)

type pair struct {
	L []string
	N int
}

func TestGraph(t *testing.T) {
	t.Parallel()
	length := steps.New("length", func(_ context.Context, s string) (int, error) { return len(s), nil })
	split := steps.NewTx("split", func(_ context.Context, _ pgx.Tx, s string) ([]string, error) { return strings.Fields(s), nil })
	join := steps.NewLong("join", func(_ context.Context, p pair, _ *steps.Cursor[int]) (string, error) {
		return strings.Join(p.L, ""), nil
	})
	w := steps.Declare[string, string]("graph")
	p := compile(t, w.Define(func(f *steps.Flow, in steps.Ref[string]) steps.Ref[string] {
		n := length.Do(f, in)
		l := split.Do(f, steps.Map(in, strings.ToUpper))
		s := join.Do(f, steps.Map2(l, n, func(l []string, n int) pair { return pair{l, n} }))
		return steps.Map3(s, n, in, func(s string, n int, in string) string { return s + strings.Repeat("!", n) + in })
	}))
	if p.Workflow != "graph" || p.In != "string" || p.Out != "string" || len(p.Nodes) != 3 {
		t.Fatalf("%+v", p)
	}
	vals := values(map[int]string{plan.Input: `"a b"`, 0: "3", 1: `["A","B"]`, 2: `"AB"`})
	for i, want := range []struct {
		name  string
		kind  plan.Kind
		deps  []int
		input any
	}{
		{"length", plan.Plain, []int{plan.Input}, "a b"},
		{"split", plan.Tx, []int{plan.Input}, "A B"},
		{"join", plan.Long, []int{0, 1}, pair{[]string{"A", "B"}, 3}},
	} {
		n := p.Nodes[i]
		in, err := n.Input.Eval(vals)
		if n.Step.Name != want.name || n.Step.Kind != want.kind || !reflect.DeepEqual(n.Input.Deps, want.deps) ||
			!reflect.DeepEqual(in, want.input) || err != nil {
			t.Errorf("node %d: %+v, input %v, %v", i, n, in, err)
		}
	}
	if out, err := p.Result.Eval(vals); out != "AB!!!a b" || err != nil || !reflect.DeepEqual(p.Result.Deps, []int{-1, 0, 2}) {
		t.Errorf("result %v, %v of %v", out, err, p.Result.Deps)
	}
}

// Each use decodes the stored bytes anew: nothing is shared between uses.
func TestValuesAreDecodedEachTime(t *testing.T) {
	t.Parallel()
	w := steps.Declare[[]string, []string]("w")
	id := func(_ context.Context, l []string) ([]string, error) { return l, nil }
	p := compile(t, w.Define(func(f *steps.Flow, in steps.Ref[[]string]) steps.Ref[[]string] {
		out := steps.New("a", id).Do(f, in)
		return steps.Map2(out, out, func(a, b []string) []string { a[0] = "changed"; return b })
	}))
	if !reflect.DeepEqual(p.Result.Deps, []int{0}) {
		t.Errorf("reads %v", p.Result.Deps)
	}
	for range 2 {
		if out, err := p.Result.Eval(values(map[int]string{0: `["x"]`})); err != nil || out.([]string)[0] != "x" {
			t.Errorf("got %v, %v", out, err)
		}
	}
}

func TestStoredValuesThatDoNotDecode(t *testing.T) {
	t.Parallel()
	mapped := false
	p := compile(t, word.Define(func(f *steps.Flow, in steps.Ref[string]) steps.Ref[string] {
		return steps.Map(steps.New("a", pass).Do(f, in), func(s string) string { mapped = true; return s })
	}))
	bad := values(map[int]string{plan.Input: "1", 0: `"x" y`})
	for want, eval := range map[string]func(plan.Values) (any, error){
		`the input of workflow "word"`: p.Nodes[0].Input.Eval,
		`the output of step "a"`:       p.Result.Eval,
	} {
		_, err := eval(bad)
		wantText(t, err, want)
		if e := steps.Classify(err); e.Class != steps.ClassPermanent || e.Code != "DECODE" || !e.Marked() {
			t.Errorf("classified as %+v", e)
		}
	}
	lost := errors.New("connection lost")
	if _, err := p.Result.Eval(func(int) ([]byte, error) { return nil, lost }); err != lost {
		t.Errorf("the engine's own error became %v", err)
	}
	if mapped {
		t.Error("Map's function was called without a value")
	}
	s := p.Nodes[0].Step
	for _, decode := range []func([]byte) (any, error){s.DecodeIn, s.DecodeOut} {
		if v, err := decode([]byte(`"x"`)); v != "x" || err != nil {
			t.Errorf("%v, %v", v, err)
		}
		_, err := decode([]byte(`{`))
		wantText(t, err, `step "a"`, "DECODE")
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	s := only(t, word.Of(steps.New("a", pass)))
	if out, err := s.Body(ctx, "x", nil, nil); out != "x" || err != nil {
		t.Errorf("%v, %v", out, err)
	}
	if _, err := s.Body(ctx, 5, nil, nil); err == nil {
		t.Error("an int went for a string")
	}
	tx := struct{ pgx.Tx }{}
	s = only(t, word.Of(steps.NewTx("a", func(_ context.Context, got pgx.Tx, s string) (string, error) {
		if got != tx {
			t.Error("another transaction")
		}
		return s, errors.ErrUnsupported
	})))
	if out, err := s.Body(ctx, "x", tx, nil); out != "x" || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v, %v", out, err)
	}
	loose := steps.Declare[any, string]("loose")
	s = only(t, loose.Of(steps.New("a", func(_ context.Context, v any) (string, error) { return reflect.ValueOf(v).String(), nil })))
	for _, v := range []any{nil, 1, "x"} {
		if _, err := s.Body(ctx, v, nil, nil); err != nil {
			t.Errorf("%v: %v", v, err)
		}
	}
}
