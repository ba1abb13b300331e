package steps

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/internal/plan"
)

// draft is a step without its types, as its user wrote it. Copies share what
// they hold, so nothing in it is ever changed in place.
type draft struct {
	name     string
	kind     plan.Kind
	opts     []Option
	lookUps  []lookUp // more than one is refused
	problems []error
	compiled plan.Step // what needs the types
}

type lookUp struct {
	ask  func(context.Context, any) (plan.Verdict, error)
	late time.Duration
	opts []Option
}

func newDraft[I, O any](kind plan.Kind, name string, nilFn bool, opts []Option,
	body func(context.Context, I, pgx.Tx, plan.Cursor) (O, error)) draft {
	in, out := reflect.TypeFor[I](), reflect.TypeFor[O]()
	d := draft{name: name, kind: kind, opts: slices.Clone(opts), problems: problems(name, in, out)}
	if nilFn {
		d.problems = append(d.problems, errors.New("the function is nil"))
	}
	d.compiled = plan.Step{
		Name: name,
		Kind: kind,
		In:   shape(in),
		Out:  shape(out),
		Body: func(ctx context.Context, v any, tx pgx.Tx, cur plan.Cursor) (any, error) {
			in, err := as[I](v)
			if err != nil {
				return nil, err
			}
			return body(ctx, in, tx, cur)
		},
		DecodeIn: func(b []byte) (any, error) {
			return decodeWith(plan.DecodeStrict[I], b, fmt.Sprintf("the input of step %q", name))
		},
		DecodeOut: func(b []byte) (any, error) {
			return decodeWith(plan.DecodeStrict[O], b, fmt.Sprintf("the output of step %q", name))
		},
	}
	return d
}

// settle fills in every default and tells what contradicts itself.
func (d draft) settle(defaults *settings) (*plan.Step, []error) {
	if d.kind == "" {
		return &plan.Step{}, []error{errors.New("a zero Step: make one with New, NewTx or NewLong")}
	}
	own := gather(d.opts)
	step := d.compiled
	problems := slices.Concat(d.problems, own.problems, own.fill(&step, defaults))

	effects := own.effects()
	for _, l := range d.lookUps {
		effects = append(effects, "LookUp")
		problems = append(problems, l.settle(&step)...)
	}
	if step.Effect == plan.LookUp || step.Effect == plan.Manual {
		step.Classify = own.classify // a mark would say that nothing happened: see Classifier
		if own.classify == nil {
			step.Given = slices.DeleteFunc(step.Given, func(name string) bool { return name == "classifier" })
		}
	}
	if len(effects) > 1 {
		problems = append(problems, fmt.Errorf("%s and %s: an effect is established in one way", effects[0], effects[1]))
	}
	if len(effects) > 0 && d.kind == plan.Tx {
		problems = append(problems, fmt.Errorf("%s: the effect of a NewTx step is in the database and needs none", effects[0]))
	}
	return &step, problems
}

func (l lookUp) settle(step *plan.Step) (problems []error) {
	s := gather(l.opts)
	problems = s.problems
	for _, o := range s.given {
		if o != "Retry" {
			problems = append(problems, fmt.Errorf("%s means nothing for questions", o))
		}
	}
	if l.ask == nil {
		problems = append(problems, errors.New("the function is nil"))
	}
	if err := checkDuration(l.late); err != nil {
		problems = append(problems, fmt.Errorf("lateArrival %w", err))
	}
	retry, err := s.retry.over(Retry{}, plan.DefaultQuestions)
	if err != nil {
		problems = append(problems, fmt.Errorf("Retry: %w", err))
	}
	step.Effect, step.Ask, step.LateArrival, step.Questions = plan.LookUp, l.ask, l.late, retry
	step.Given = append(append(step.Given, "effect"), s.retry.chosen("questions", Retry{})...)
	for i, p := range problems {
		problems[i] = fmt.Errorf("LookUp: %w", p)
	}
	return problems
}
