package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/plan"
	"github.com/pawlworks/pawl/steps"
)

// Priority of a run: which is claimed first while others wait. A preference,
// not an order.
type Priority int16

// The priorities.
const (
	Low    Priority = 0
	Normal Priority = 1 // the default
	High   Priority = 2
	Urgent Priority = 3
)

// StartOption says more about runs that are started.
type StartOption interface{ start(*starting) }

type startOption func(*starting)

func (o startOption) start(s *starting) { o(s) }

type starting struct {
	keys     []string
	tags     []string
	priority Priority
	delay    time.Duration
	due      time.Time
	reuse    time.Duration // negative: never
	silent   bool
	errs     []error
}

// Key starts at most one run: starting again with the key gives back the run
// that has it, ended or not. 1 to 512 bytes, unique within the workflow.
func Key(key string) StartOption { return Keys([]string{key}) }

// Keys is Key for StartMany: one for each input; an empty one is no key.
func Keys(keys []string) StartOption {
	return startOption(func(s *starting) {
		if s.keys != nil {
			s.errs = append(s.errs, fmt.Errorf("pawl: the key is given twice"))
		}
		s.keys = keys
	})
}

// ReuseAfter lets a key start another run once its last one ended at least d
// ago. The new run's effects have new idempotency keys. Default: never.
func ReuseAfter(d time.Duration) StartOption {
	return startOption(func(s *starting) {
		if d < 0 {
			s.errs = append(s.errs, fmt.Errorf("pawl: ReuseAfter(%v) is less than nothing", d))
		}
		s.reuse = d
	})
}

// Tags are for finding runs again: at most 32 of 1 to 200 bytes.
func Tags(tags ...string) StartOption {
	return startOption(func(s *starting) { s.tags = append(s.tags, tags...) })
}

// After makes the run due only after d, by the database's clock.
func After(d time.Duration) StartOption {
	return startOption(func(s *starting) {
		if d < 0 {
			s.errs = append(s.errs, fmt.Errorf("pawl: After(%v) is less than nothing", d))
		}
		s.delay = d
	})
}

// At makes the run due at t, by the database's clock; at once if that has passed.
func At(t time.Time) StartOption { return startOption(func(s *starting) { s.due = t }) }

// WithPriority sets the run's priority. Default: Normal.
func WithPriority(p Priority) StartOption {
	return startOption(func(s *starting) {
		if p < Low || p > Urgent {
			s.errs = append(s.errs, fmt.Errorf("pawl: priority %d is not one of Low, Normal, High, Urgent", p))
		}
		s.priority = p
	})
}

// Silently sends no wake-up: polling finds the run within three quarters of the
// workers' Config.Session (15 s by default).
// For StartTx in transactions so frequent that NOTIFY's lock would be felt.
func Silently() StartOption { return startOption(func(s *starting) { s.silent = true }) }

// Start starts a run. When it returns without error the run is durable, and
// will be worked on by any process that has its definition; this one needs
// only the contract. An error of the connection leaves open whether it was
// started: start again with the same Key. ErrKeyConflict comes with the run
// that has the key; after ErrUnknownWorkflow, ErrTooLarge or an error about an
// option nothing was stored.
func Start[I, O any](ctx context.Context, e *Engine, w steps.Workflow[I, O], in I, opts ...StartOption) (Run[O], error) {
	return first(startMany(ctx, e, e.db, nil, w, []I{in}, opts))
}

// StartTx starts a run in the caller's transaction: it exists when that
// commits, and never did if it rolls back; nothing is durable when StartTx
// returns. Workers are woken at the commit. The errors are Start's; one of the
// database's has made the transaction useless, as any statement's would.
func StartTx[I, O any](ctx context.Context, e *Engine, tx pgx.Tx, w steps.Workflow[I, O], in I, opts ...StartOption) (Run[O], error) {
	if tx == nil {
		return Run[O]{}, fmt.Errorf("pawl: StartTx of workflow %q needs a transaction", w.Name())
	}
	return first(startMany(ctx, e, db.New(tx), tx, w, []I{in}, opts))
}

// StartMany starts a run for each input, all or none, in one commit, which is
// durable when it returns. Some ten thousand at a time is a good size. The runs
// come in the order of the inputs; those of keys that had started one before
// have Existed. The errors are Start's.
func StartMany[I, O any](ctx context.Context, e *Engine, w steps.Workflow[I, O], ins []I, opts ...StartOption) ([]Run[O], error) {
	if len(ins) == 0 {
		return nil, nil
	}
	return startMany(ctx, e, e.db, nil, w, ins, opts)
}

func first[O any](runs []Run[O], err error) (Run[O], error) {
	if len(runs) == 0 {
		return Run[O]{}, err
	}
	return runs[0], err
}

func startMany[I, O any](ctx context.Context, e *Engine, q *db.Queries, tx pgx.Tx, w steps.Workflow[I, O], ins []I, opts []StartOption) ([]Run[O], error) {
	if err := w.Err(); err != nil {
		return nil, err
	}
	inputs := make([][]byte, len(ins))
	for i, in := range ins {
		b, err := plan.Encode(in)
		if err != nil {
			return nil, fmt.Errorf("pawl: the input of workflow %q: %w", w.Name(), err)
		}
		if len(b) > e.config.MaxPayload {
			return nil, fmt.Errorf("%w: the input of workflow %q has %d bytes, more than %d: store it elsewhere and pass a reference",
				ErrTooLarge, w.Name(), len(b), e.config.MaxPayload)
		}
		inputs[i] = b
	}
	started, err := e.start(ctx, q, tx, w.Name(), inputs, opts)
	if err != nil {
		return nil, err
	}
	runs := make([]Run[O], len(started))
	for i, s := range started {
		runs[i] = Run[O]{ID: s.id.String(), Existed: s.existed, e: e, id: s.id, workflow: w.Name()}
		if s.conflict && err == nil {
			err = fmt.Errorf("%w: run %s of workflow %q", ErrKeyConflict, s.id, w.Name())
		}
	}
	return runs, err
}

type started struct {
	id                uuid.UUID
	existed, conflict bool
}

func (e *Engine) start(ctx context.Context, q *db.Queries, tx pgx.Tx, workflow string, inputs [][]byte, opts []StartOption) (_ []started, err error) {
	s := starting{priority: Normal, reuse: -1}
	for _, o := range opts {
		if o != nil {
			o.start(&s)
		}
	}
	if err := s.validate(workflow, len(inputs)); err != nil {
		return nil, err
	}
	reuse := int64(-1)
	if s.reuse >= 0 {
		reuse = ms(s.reuse)
	}
	var out []started
	sending := e.sending(ctx, workflow, len(inputs))
	defer func() { sending.sent(workflow, out, err) }()
	rows, err := q.StartRuns(ctx, db.StartRunsParams{
		Workflow: workflow, Inputs: inputs, Encoding: encodingJSON, Keys: s.keys, Tags: s.tags, Priority: int16(s.priority),
		DelayMs: ms(s.delay), Due: s.due, Traceparents: sending.parents, Tracestates: sending.states,
		ReuseMs: reuse,
	})
	if err != nil {
		if sqlState(err) == "PW001" {
			return nil, fmt.Errorf("%w: %q: start a process that has its definition once, then start runs", ErrUnknownWorkflow, workflow)
		}
		return nil, fmt.Errorf("pawl: starting workflow %q: %w", workflow, err)
	}
	if len(rows) != len(inputs) {
		return nil, fmt.Errorf("pawl: starting workflow %q: %d of %d runs answered for", workflow, len(rows), len(inputs))
	}
	out = make([]started, len(rows))
	for i, r := range rows {
		out[i] = started{*r.RunID, *r.Existed, *r.Existed && !*r.Same}
	}
	switch {
	case s.silent:
	case tx != nil: // heard when the caller commits
		if err := q.Notify(ctx, wakeWork); err != nil {
			return nil, fmt.Errorf("pawl: starting workflow %q: %w", workflow, err)
		}
	default:
		e.listener.tell(wakeWork) // this process at once, the others by NOTIFY
		e.notifier.wake(wakeWork)
	}
	return out, nil
}

// encodingJSON names how payloads are written.
const encodingJSON = "json"

func (s *starting) validate(workflow string, n int) error {
	if s.keys == nil {
		s.keys = make([]string, n)
	} else if len(s.keys) != n {
		s.errs = append(s.errs, fmt.Errorf("pawl: starting workflow %q: %d keys for %d inputs", workflow, len(s.keys), n))
	} else if n == 1 && s.keys[0] == "" {
		s.errs = append(s.errs, fmt.Errorf("pawl: starting workflow %q: the key is empty", workflow))
	}
	for _, k := range s.keys {
		s.errs = append(s.errs, badText("key", k, 512))
	}
	if len(s.tags) > 32 {
		s.errs = append(s.errs, fmt.Errorf("pawl: starting workflow %q: %d tags, more than 32", workflow, len(s.tags)))
	}
	for _, t := range s.tags {
		s.errs = append(s.errs, badText("tag", t, 200))
		if t == "" {
			s.errs = append(s.errs, fmt.Errorf("pawl: starting workflow %q: a tag is empty", workflow))
		}
	}
	if s.delay > 0 && !s.due.IsZero() {
		s.errs = append(s.errs, fmt.Errorf("pawl: starting workflow %q: After and At contradict each other", workflow))
	}
	if y := s.due.Year(); !s.due.IsZero() && (y < 1 || y > 9999) {
		s.errs = append(s.errs, fmt.Errorf("pawl: starting workflow %q: At is in the year %d", workflow, y))
	}
	if s.tags == nil {
		s.tags = []string{}
	}
	for _, err := range s.errs {
		if err != nil {
			return err
		}
	}
	return nil
}
