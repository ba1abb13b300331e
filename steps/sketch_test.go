package steps_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/internal/plan"
	"github.com/pawlworks/pawl/steps"
)

// The two programs that the API was designed around. They name types nowhere
// but in Declare, NeverHappened and StillUnknown.

var rent = steps.Declare[booking, ticket]("rent-bike")

type (
	booking struct {
		Rider string
		Cents int64
	}
	lock    struct{ Bike string }
	payment struct {
		Rider, Bike string
		Cents       int64
	}
	receipt struct{ ID string }
	note    struct{ Rider, Receipt string }
	ticket  struct{ Code string }
)

type bank interface {
	Pay(ctx context.Context, key string, p payment) (receipt, error)
	Find(ctx context.Context, key string) (receipt, bool, error)
}

type rental struct{ bank bank }

func (r *rental) definition() steps.Definition {
	hold := steps.NewTx("lock", r.lock)
	charge := steps.New("charge", r.charge,
		steps.MaxRuntime(2*time.Minute),
		steps.Retry{Attempts: 8, Within: 24 * time.Hour, MaxDelay: 10 * time.Minute}).
		LookUp(r.findCharge, 15*time.Minute)
	send := steps.New("send", r.send, steps.Idempotent(steps.Forever))

	return rent.Define(func(f *steps.Flow, b steps.Ref[booking]) steps.Ref[ticket] {
		l := hold.Do(f, b)
		paid := charge.Do(f, steps.Map2(b, l, toPayment))
		return send.Do(f, steps.Map2(b, paid, func(b booking, r receipt) note { return note{b.Rider, r.ID} }))
	})
}

func toPayment(b booking, l lock) payment { return payment{b.Rider, l.Bike, b.Cents} }

func (r *rental) lock(context.Context, pgx.Tx, booking) (lock, error) { return lock{"bike-7"}, nil }
func (r *rental) send(_ context.Context, n note) (ticket, error)      { return ticket{n.Receipt}, nil }

func (r *rental) charge(ctx context.Context, p payment) (receipt, error) {
	got, err := r.bank.Pay(ctx, steps.IdempotencyKey(ctx), p)
	if errors.Is(err, errDeclined) {
		return got, steps.Permanent("DECLINED", err)
	}
	return got, err
}

func (r *rental) findCharge(ctx context.Context, _ payment) (steps.Verdict[receipt], error) {
	if late, ok := steps.LateResult[receipt](ctx); ok {
		return steps.Happened(late), nil
	}
	got, found, err := r.bank.Find(ctx, steps.IdempotencyKey(ctx))
	if found {
		return steps.Happened(got), nil
	}
	return steps.NeverHappened[receipt](), err
}

type fakeBank map[string]receipt

func (b fakeBank) Pay(_ context.Context, key string, p payment) (receipt, error) {
	if p.Cents < 0 {
		return receipt{}, errDeclined
	}
	b[key] = receipt{"r-" + p.Bike}
	return b[key], nil
}

func (b fakeBank) Find(_ context.Context, key string) (receipt, bool, error) {
	r, ok := b[key]
	return r, ok, nil
}

// run walks a plan in memory, storing each output encoded.
func run(t *testing.T, p *plan.Definition, input any) (any, error) {
	t.Helper()
	stored := map[int][]byte{}
	put := func(n int, v any) {
		b, err := plan.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		stored[n] = b
	}
	put(plan.Input, input)
	vals := func(n int) ([]byte, error) { return stored[n], nil }
	for i, n := range p.Nodes {
		in, err := n.Input.Eval(vals)
		if err != nil {
			return nil, err
		}
		out, err := n.Step.Body(steps.WithKey(ctx, n.Step.Name), in, nil, &fakeCursor{})
		if err != nil {
			return nil, err
		}
		put(i, out)
	}
	return p.Result.Eval(vals)
}

func TestSketchOfEffects(t *testing.T) {
	t.Parallel()
	bank := fakeBank{}
	p := compile(t, (&rental{bank}).definition())
	if out, err := run(t, p, booking{"ann", 5}); out != any(ticket{"r-bike-7"}) || err != nil {
		t.Errorf("got %v, %v", out, err)
	}
	_, err := run(t, p, booking{"ann", -5})
	if e := steps.Classify(err); e == nil || e.Code != "DECLINED" || e.Class != steps.ClassPermanent {
		t.Errorf("got %v", err)
	}
	v, err := p.Nodes[1].Step.Ask(steps.WithKey(ctx, "charge"), payment{})
	if v.Outcome != plan.Happened || v.Output != any(receipt{"r-bike-7"}) || err != nil {
		t.Errorf("looked up %+v, %v", v, err)
	}
	if v, err = p.Nodes[1].Step.Ask(steps.WithKey(ctx, "other"), payment{}); v.Outcome != plan.NeverHappened || err != nil {
		t.Errorf("looked up %+v, %v", v, err)
	}
}

var load = steps.Declare[[]string, tally]("load-lines")

type (
	tally struct{ Lines, Bad int }
	mark  struct {
		Next int
		tally
	}
	loader struct{ written []string }
)

func (l *loader) lines(ctx context.Context, lines []string, cur *steps.Cursor[mark]) (tally, error) {
	m := cur.At()
	for ; m.Next < len(lines); cur.Progress(int64(m.Next), int64(len(lines))) {
		line := lines[m.Next]
		m.Next++
		m.Lines++
		if line == "" {
			m.Bad++
		}
		err := cur.CommitTx(ctx, m, func(pgx.Tx) error { l.written = append(l.written, line); return nil })
		if err != nil {
			return tally{}, err
		}
	}
	return m.tally, nil
}

func TestSketchOfLong(t *testing.T) {
	t.Parallel()
	l := &loader{}
	p := compile(t, load.Of(steps.NewLong("lines", l.lines, steps.Lease(time.Minute), steps.MaxRuntime(6*time.Hour))))
	if out, err := run(t, p, []string{"a", "", "c"}); out != any(tally{3, 1}) || err != nil || len(l.written) != 3 {
		t.Errorf("got %v, %v, wrote %q", out, err, l.written)
	}
	cur := steps.NewCursor(mark{2, tally{2, 1}})
	if out, err := l.lines(ctx, []string{"a", "", "c"}, cur); out != (tally{3, 1}) || err != nil || cur.At().Next != 3 {
		t.Errorf("got %v, %v, at %+v", out, err, cur.At())
	}
}
