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

// Step is a named unit of work: a function and how to run it. It is a value:
// a method that changes something returns a changed copy. Steps are made with
// [New], [NewTx] and [NewLong]; what is wrong with one is reported by the
// [Definition] that uses it.
type Step[I, O any] struct {
	d draft
}

// New makes a step of fn. Its body runs at least once; no transaction is open
// meanwhile.
func New[I, O any](name string, fn func(context.Context, I) (O, error), opts ...Option) Step[I, O] {
	return Step[I, O]{newDraft[I, O](plan.Plain, name, fn == nil, opts,
		func(ctx context.Context, in I, _ pgx.Tx, _ plan.Cursor) (O, error) { return fn(ctx, in) })}
}

// NewTx makes a step whose body writes to the engine's own database: what it
// does with the transaction commits together with the step's completion, or
// not at all. It must not end the transaction: COMMIT or ROLLBACK by SQL makes
// the step fail for good, TX_ENDED. After a deadlock or a serialization failure
// the whole body runs again. As many run at once as the pool can spare
// connections for; one that waits for its turn for 10 s, or half its lease, goes
// back to the queue without costing an attempt.
func NewTx[I, O any](name string, fn func(context.Context, pgx.Tx, I) (O, error), opts ...Option) Step[I, O] {
	return Step[I, O]{newDraft[I, O](plan.Tx, name, fn == nil, opts,
		func(ctx context.Context, in I, tx pgx.Tx, _ plan.Cursor) (O, error) { return fn(ctx, tx, in) })}
}

// NewLong makes a step that saves its position in a [Cursor] as it goes; the
// next attempt starts from the last position committed.
func NewLong[I, C, O any](name string, fn func(context.Context, I, *Cursor[C]) (O, error), opts ...Option) Step[I, O] {
	d := newDraft[I, O](plan.Long, name, fn == nil, opts,
		func(ctx context.Context, in I, _ pgx.Tx, back plan.Cursor) (zero O, err error) {
			cur, err := openCursor[C](back, name)
			if err != nil {
				return zero, err
			}
			return fn(ctx, in, cur)
		})
	if err := checkType(reflect.TypeFor[C]()); err != nil {
		d.problems = append(d.problems, fmt.Errorf("cursor: %w", err))
	}
	return Step[I, O]{d}
}

// Do places the step next in the sequence and returns a reference to its
// output. A step's name is there once in a flow.
func (s Step[I, O]) Do(f *Flow, in Ref[I]) Ref[O] {
	if f == nil { // the Ref it returns is refused wherever it is used
		const text = "Do on a nil Flow"
		if in.src.flow != nil {
			in.src.flow.report(s.d.name, errors.New(text))
		}
		return Ref[O]{src: source{bad: &mishap{text: text}}}
	}
	n, ok := f.place(s.d, in.src, plan.Expr{Deps: in.src.deps, Eval: in.boxed()})
	if !ok {
		return Ref[O]{}
	}
	return stored[O](f, n, fmt.Sprintf("the output of step %q", s.d.name))
}

// LookUp declares how the outcome of the step's effect is established: fn asks
// the outside world what became of it, under the same [IdempotencyKey] as the
// body saw. Once the body has begun, an attempt that ends without a definite
// outcome (a result, or an error marked with a class other than [Uncertain])
// is looked up before anyone tries again. An error from fn means
// [StillUnknown], whatever stands beside it.
//
// [NeverHappened] counts only when lateArrival has passed since: so long can
// the target still receive what was sent. A [Retry] among the options is the
// questions' budget and backoff; unless set 100 attempts within 24 hours, the
// first delay at most 1 second, later ones at most 10 minutes.
func (s Step[I, O]) LookUp(fn func(context.Context, I) (Verdict[O], error), lateArrival time.Duration, opts ...Option) Step[I, O] {
	q := lookUp{late: lateArrival, opts: slices.Clone(opts)}
	if fn != nil {
		q.ask = func(ctx context.Context, in any) (plan.Verdict, error) {
			v, err := as[I](in)
			if err != nil {
				return plan.Verdict{}, err
			}
			found, err := fn(ctx, v)
			if err != nil {
				return plan.Verdict{Outcome: plan.StillUnknown}, err
			}
			return found.plan(), nil
		}
	}
	s.d.lookUps = append(slices.Clip(s.d.lookUps), q)
	return s
}
