package steps_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/pawlworks/pawl/steps"
)

// Everything wrong is reported, and names the workflow and the step.
func TestStepRefusals(t *testing.T) {
	t.Parallel()
	type S = steps.Step[string, string]
	opts := func(o ...steps.Option) S { return steps.New("a", pass, o...) }
	for name, c := range map[string]struct {
		step S
		want string
	}{
		"zero step":               {S{}, "a zero Step"},
		"nil function":            {steps.New[string, string]("a", nil), "the function is nil"},
		"typed nil function":      {steps.New("a", (func(context.Context, string) (string, error))(nil)), "the function is nil"},
		"nil tx function":         {steps.NewTx[string, string]("a", nil), "the function is nil"},
		"nil long function":       {steps.NewLong[string, int, string]("a", nil), "the function is nil"},
		"nil option":              {opts(nil), "an option is nil"},
		"nil pointer option":      {opts((*steps.Retry)(nil)), "an option is nil"},
		"twice":                   {opts(steps.Lease(time.Second), steps.Lease(time.Minute)), "Lease: given twice"},
		"retry twice":             {opts(steps.Retry{}, steps.Retry{}), "Retry: given twice"},
		"unknown twice":           {opts(steps.RetryUnknown{}, steps.RetryUnknown{}), "RetryUnknown: given twice"},
		"manual twice":            {opts(steps.Manual(), steps.Manual()), "Manual: given twice"},
		"zero lease":              {opts(steps.Lease(0)), "Lease: must be at least"},
		"negative lease":          {opts(steps.Lease(-1)), "Lease: must be at least"},
		"lease without unit":      {opts(steps.Lease(60)), "Lease: must be at least a millisecond, is 60ns"},
		"zero heartbeat":          {opts(steps.Heartbeat(0)), "Heartbeat: must"},
		"zero runtime":            {opts(steps.MaxRuntime(0)), "MaxRuntime: must"},
		"zero ttl":                {opts(steps.Idempotent(0)), "Idempotent: must"},
		"negative ttl":            {opts(steps.Idempotent(-time.Hour)), "Idempotent: must"},
		"lease over runtime":      {opts(steps.Lease(time.Hour), steps.MaxRuntime(time.Minute)), "Lease: 1h0m0s is more than MaxRuntime, 1m0s"},
		"heartbeat at lease":      {opts(steps.Lease(time.Second), steps.Heartbeat(time.Second)), "Heartbeat: 1s is not less than Lease"},
		"heartbeat over default":  {opts(steps.Heartbeat(time.Hour)), "Heartbeat: 1h0m0s is not less than Lease, 1m0s"},
		"negative attempts":       {opts(steps.Retry{Attempts: -1}), "Retry: negative Attempts"},
		"negative within":         {opts(steps.Retry{Within: -1}), "Retry: Within must"},
		"negative delay":          {opts(steps.Retry{Delay: -1}), "Retry: Delay must"},
		"delay without unit":      {opts(steps.Retry{Delay: 5}), "Retry: Delay must"},
		"negative max delay":      {opts(steps.RetryUnknown{MaxDelay: -1}), "RetryUnknown: MaxDelay must"},
		"max delay under delay":   {opts(steps.Retry{Delay: time.Minute, MaxDelay: time.Second}), "Retry: a MaxDelay that is less"},
		"unknown max under delay": {opts(steps.RetryUnknown{Delay: time.Minute, MaxDelay: time.Second}), "RetryUnknown: a MaxDelay"},
		"empty queue":             {opts(steps.Queue("")), "Queue: the name is empty"},
		"bad owner":               {opts(steps.Owner("a\x00")), "Owner: the name holds the control"},
		"nil classifier":          {opts(steps.Classifier(nil)), "Classifier: the function is nil"},
		"two effects":             {opts(steps.Idempotent(time.Hour), steps.Manual()), "Idempotent and Manual: an effect"},
		"idempotent and lookup":   {opts(steps.Idempotent(time.Hour)).LookUp(find, time.Minute), "Idempotent and LookUp: an effect"},
		"manual and lookup":       {opts(steps.Manual()).LookUp(find, time.Minute), "Manual and LookUp: an effect"},
		"lookup twice":            {opts().LookUp(find, time.Minute).LookUp(find, time.Minute), "LookUp and LookUp: an effect"},
		"manual tx":               {steps.NewTx("a", passTx, steps.Manual()), "Manual: the effect of a NewTx step"},
		"idempotent tx":           {steps.NewTx("a", passTx, steps.Idempotent(time.Hour)), "Idempotent: the effect of a NewTx step"},
		"lookup tx":               {steps.NewTx("a", passTx).LookUp(find, time.Minute), "LookUp: the effect of a NewTx step"},
		"nil lookup":              {opts().LookUp(nil, time.Minute), "LookUp: the function is nil"},
		"zero late arrival":       {opts().LookUp(find, 0), "LookUp: lateArrival must"},
		"negative late arrival":   {opts().LookUp(find, -time.Minute), "LookUp: lateArrival must"},
		"lookup option":           {opts().LookUp(find, time.Minute, steps.Lease(time.Minute)), "LookUp: Lease means nothing"},
		"lookup retry":            {opts().LookUp(find, time.Minute, steps.Retry{Attempts: -2}), "LookUp: Retry: negative Attempts"},
		"lookup nil option":       {opts().LookUp(find, time.Minute, nil), "LookUp: an option is nil"},
		"lookup delays":           {opts().LookUp(find, time.Minute, steps.Retry{Delay: time.Hour, MaxDelay: time.Minute}), "LookUp: Retry: a MaxDelay"},
		"formerly itself":         {opts(steps.Formerly("a")), "Formerly: that is its name now"},
		"formerly twice":          {opts(steps.Formerly("b"), steps.Formerly("b")), `Formerly: "b" is given twice`},
		"formerly bad":            {opts(steps.Formerly("b/c")), "Formerly: the name holds"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := word.Of(c.step)
			wantText(t, d.Err(), `workflow "word"`, c.want)
			if name != "zero step" {
				wantText(t, d.Err(), `step "a"`)
			}
			if strings.Contains(d.Err().Error(), "panicked") || d.Plan() != nil {
				t.Errorf("%v, plan %v", d.Err(), d.Plan())
			}
		})
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 100)
	for _, name := range []string{"a", "reserve stock", `it's "so"`, "😀", long, "a.b:c-d_e", "\ufffd"} {
		w := steps.Declare[string, string](name)
		if err := errors.Join(w.Err(), w.Of(steps.New(name, pass)).Err()); err != nil || w.Name() != name {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"": "empty", " a": "space", "a ": "space", "a\u00a0": "space", "a/b": "'/'", "a[": "'['", "a]": "']'",
		"a#1": "'#'", "a\x00b": "U+0000", "a\tb": "U+0009", "a\u0085b": "U+0085", "a\u2028b": "U+2028",
		"a\x7f": "U+007F", "\xff": "UTF-8", long + "x": "201 bytes",
	} {
		wantText(t, steps.Declare[string, string](name).Err(), want)
		wantText(t, steps.Declare[string, string](name).Of(steps.New("a", pass)).Err(), "workflow", want)
		wantText(t, word.Of(steps.New(name, pass)).Err(), `workflow "word"`, want)
	}
}

func TestFlowRefusals(t *testing.T) {
	t.Parallel()
	type (
		F = *steps.Flow
		R = steps.Ref[string]
	)
	a, b := steps.New("a", pass), steps.New("b", pass)
	var stolen R
	other := steps.Declare[string, string]("other")
	if err := other.Define(func(f F, in R) R { stolen = a.Do(f, in); return stolen }).Err(); err != nil {
		t.Fatal(err)
	}
	both := func(x, y string) string { return x + y }
	for name, c := range map[string]struct {
		draw func(F, R) R
		want []string
	}{
		"nil draw":             {nil, []string{"the draw function is nil"}},
		"no steps":             {func(_ F, in R) R { return in }, []string{"no steps"}},
		"panic":                {func(F, R) R { panic("oops") }, []string{"panicked", "refusal_test.go:", "oops"}},
		"nil dereference":      {func(F, R) R { var p *R; return *p }, []string{"panicked", "refusal_test.go:", "nil pointer"}},
		"zero ref":             {func(f F, _ R) R { return a.Do(f, R{}) }, []string{`step "a"`, "zero Ref"}},
		"zero result":          {func(f F, in R) R { a.Do(f, in); return R{} }, []string{"the result", "zero Ref"}},
		"other flow":           {func(f F, _ R) R { return a.Do(f, stolen) }, []string{`step "a"`, `Ref of workflow "other"`}},
		"other flow as result": {func(f F, in R) R { a.Do(f, in); return stolen }, []string{"the result", `Ref of workflow "other"`}},
		"map of zero":          {func(f F, _ R) R { return a.Do(f, steps.Map(R{}, strings.ToUpper)) }, []string{`step "a"`, "Map: a zero Ref"}},
		"map2 of zero":         {func(f F, in R) R { return a.Do(f, steps.Map2(in, R{}, both)) }, []string{`step "a"`, "Map2: a zero Ref"}},
		"map2 of two flows":    {func(f F, in R) R { return a.Do(f, steps.Map2(in, stolen, both)) }, []string{`step "a"`, "Map2", `workflow "other"`}},
		"nil map":              {func(f F, in R) R { return a.Do(f, steps.Map[string, string](in, nil)) }, []string{`step "a"`, "Map: its function is nil"}},
		"nil map2":             {func(f F, in R) R { return a.Do(f, steps.Map2[string, string, string](in, in, nil)) }, []string{`step "a"`, "Map2: its function is nil"}},
		"nil map3 in the result": {func(f F, in R) R {
			return steps.Map3[string, string, string, string](in, in, a.Do(f, in), nil)
		}, []string{"the result", "Map3: its function is nil"}},
		"nil map nobody uses": {func(f F, in R) R { steps.Map[string, int](in, nil); return a.Do(f, in) }, []string{"Map: its function is nil"}},
		"map of a bad map": {func(f F, in R) R {
			return a.Do(f, steps.Map(steps.Map[string, string](in, nil), strings.ToUpper))
		}, []string{`step "a"`, "Map: Map: its function is nil"}},
		"same step twice":  {func(f F, in R) R { return a.Do(f, a.Do(f, in)) }, []string{`step "a"`, "there twice"}},
		"two of a name":    {func(f F, in R) R { return steps.NewTx("a", passTx).Do(f, a.Do(f, in)) }, []string{`step "a"`, "there twice"}},
		"formerly another": {func(f F, in R) R { return steps.New("c", pass, steps.Formerly("a")).Do(f, a.Do(f, in)) }, []string{`step "c"`, `Formerly("a"): another step`}},
		"formerly a later": {func(f F, in R) R { return b.Do(f, steps.New("c", pass, steps.Formerly("b")).Do(f, in)) }, []string{`step "c"`, `Formerly("b"): another step`}},
		"formerly the same": {func(f F, in R) R {
			return steps.New("d", pass, steps.Formerly("z")).Do(f, steps.New("c", pass, steps.Formerly("z")).Do(f, in))
		}, []string{`step "d"`, `step "c" was that one`}},
		"nil flow":           {func(f F, in R) R { a.Do(nil, in); return b.Do(f, in) }, []string{`step "a"`, "nil Flow"}},
		"nil flow, zero ref": {func(f F, _ R) R { return b.Do(f, a.Do(nil, R{})) }, []string{`step "b"`, "nil Flow"}},
		"two problems": {func(f F, in R) R {
			return steps.New("x/y", pass).Do(f, steps.New("z", pass, steps.Lease(0)).Do(f, in))
		}, []string{`step "x/y"`, `step "z"`, "Lease"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := word.Define(c.draw)
			wantText(t, d.Err(), append(c.want, `workflow "word"`)...)
			if n := strings.Count(d.Err().Error(), c.want[len(c.want)-1]); n != 1 {
				t.Errorf("told %d times:\n%v", n, d.Err())
			}
			if d.Plan() != nil || d.Workflow() != "word" {
				t.Error("it has a plan, or lost its name")
			}
		})
	}
}

func TestRefsEndWithTheirDefine(t *testing.T) {
	t.Parallel()
	type R = steps.Ref[string]
	a := steps.New("a", pass)
	var flow *steps.Flow
	var in, out R
	draw := func(f *steps.Flow, r R) R {
		if flow != nil { // an earlier call's
			return a.Do(f, out)
		}
		flow, in, out = f, r, a.Do(f, r)
		return out
	}
	d := word.Define(draw)
	compile(t, d)
	wantText(t, word.Define(draw).Err(), `step "a"`, "another call of Define")

	late := steps.New("late", pass).Do(flow, in)
	wantText(t, d.Err(), `step "late"`, "after the draw function has returned")
	if d.Plan() != nil {
		t.Error("it still has a plan")
	}
	wantText(t, word.Define(func(f *steps.Flow, in R) R { return a.Do(f, late) }).Err(), "zero Ref")

	d = word.Define(func(f *steps.Flow, r R) R { in = r; return a.Do(f, r) })
	steps.Map(in, strings.ToUpper)
	wantText(t, d.Err(), "Map: used after the draw function has returned")
}

func TestDefineOptions(t *testing.T) {
	t.Parallel()
	a := steps.New("a", pass)
	for _, c := range []struct {
		opt  steps.Option
		want string
	}{
		{steps.Idempotent(time.Hour), "Idempotent is for a step"},
		{steps.Manual(), "Manual is for a step"},
		{steps.Formerly("b"), "Formerly is for a step"},
		{steps.Lease(0), "Lease: must"},
		{nil, "an option is nil"},
	} {
		wantText(t, word.Of(a, c.opt).Err(), `workflow "word": options of Define`, c.want)
	}
	wantText(t, word.Of(a, steps.Queue("x"), steps.Queue("x")).Err(), "Queue: given twice")
	long := steps.New("a", pass, steps.Lease(time.Hour))
	wantText(t, word.Of(long, steps.MaxRuntime(time.Minute)).Err(), `step "a"`, "is more than MaxRuntime")
	wantText(t, steps.Definition{}.Err(), "a zero Definition")
	wantText(t, steps.Workflow[string, string]{}.Err(), "a zero Workflow")
	wantText(t, steps.Workflow[string, string]{}.Of(a).Err(), "a zero Workflow")
	if (steps.Definition{}).Plan() != nil || (steps.Definition{}).Workflow() != "" {
		t.Error("a zero Definition has a plan or a name")
	}
}

type (
	node    struct{ Next *node }
	list    []list
	pointer *pointer
	badKey  struct{ M map[float64]int }
	deep    struct {
		L []map[string]struct{ C chan int }
	}
	hidden   struct{ X int }
	embedded struct{ *hidden }
	failed   struct{ Err error }
	fine     struct {
		N    node
		L    list
		P    pointer
		Any  any
		Raw  json.RawMessage
		Big  *big.Int
		T    time.Time
		M    map[int]string
		B    []byte
		Skip chan int `json:"-"`
		own  chan int
	}
)

func typed[T any]() error { return steps.Declare[T, string]("typed").Err() }

func TestTypes(t *testing.T) {
	t.Parallel()
	_ = fine{}.own
	for _, err := range []error{typed[fine](), typed[*fine](), typed[any](), typed[struct{}](), typed[map[time.Time]int]()} {
		if err != nil {
			t.Error(err)
		}
	}
	for want, err := range map[string]error{
		"chan int":             typed[chan int](),
		"func()":               typed[func()](),
		"complex64":            typed[[]complex64](),
		"keys of type float64": typed[badKey](),
		"deep.L[][].C is chan": typed[*deep](),
		"embedded.hidden":      typed[embedded](),
		"failed.Err is error":  typed[failed](),
	} {
		wantText(t, err, `workflow "typed": input`, want)
	}
	wantText(t, steps.Declare[string, chan int]("typed").Err(), "output")
	in := steps.New("a", func(context.Context, string) (failed, error) { return failed{}, nil })
	wantText(t, word.Define(func(f *steps.Flow, r steps.Ref[string]) steps.Ref[string] { in.Do(f, r); return r }).Err(), `step "a": output: `)
	cur := steps.NewLong("a", func(context.Context, string, *steps.Cursor[badKey]) (string, error) { return "", nil })
	wantText(t, word.Of(cur).Err(), `step "a": cursor: `)
}
