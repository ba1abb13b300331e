package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/plan"
)

// By says who acts and why. Both are kept for ever in the run's history or the
// audit; neither may be empty.
type By struct {
	Actor  string // a person, or a program that acts for one
	Reason string
}

func (b By) check() error {
	for what, s := range map[string]string{"actor": b.Actor, "reason": b.Reason} {
		if strings.TrimSpace(s) == "" {
			return fmt.Errorf("pawl: the %s is empty: who acts, and why, is recorded", what)
		}
		if err := badText(what, s, 2000); err != nil {
			return err
		}
	}
	return nil
}

// Cancel asks for the end of a run. What waits ends at once, a running step
// has its context cancelled with steps.ErrCancelled, and an effect whose
// outcome is unknown is settled first (one that is Idempotent is not waited for:
// it may have happened); a run whose last step completes
// meanwhile has succeeded. The wish is durable when Cancel returns; Wait tells
// when the run has ended. Cancelling twice is no error; a run that has ended
// gives ErrState, one that is not there ErrNotFound.
func (e *Engine) Cancel(ctx context.Context, id string, by By) error {
	u, err := e.parse(id)
	if err != nil {
		return err
	}
	if err := by.check(); err != nil {
		return err
	}
	_, err = e.db.Cancel(ctx, db.CancelParams{Shard: shardIn(u), ID: u, Actor: by.Actor, Reason: by.Reason})
	if errors.Is(err, pgx.ErrNoRows) {
		r, err := e.db.RunState(ctx, db.RunStateParams{Shard: shardIn(u), ID: u})
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return fmt.Errorf("%w: run %s", ErrNotFound, id)
		case err != nil:
			return fmt.Errorf("pawl: cancelling run %s: %w", id, err)
		case r.Cancelling:
			return nil
		}
		return fmt.Errorf("%w: run %s of %q has ended: %s", ErrState, id, r.Workflow, text(r.Outcome))
	} else if err != nil {
		return fmt.Errorf("pawl: cancelling run %s: %w", id, err)
	}
	if _, err := e.closeCancelled(ctx, shardIn(u), u); err != nil {
		e.log.Debug("pawl: a cancelled run is ended by the workers", "run_id", id, "error", err)
	}
	e.listener.tell(wakeCancel)
	e.notifier.wake(wakeCancel)
	return nil
}

// ReplayOption says more about a Replay.
type ReplayOption func(*replaying)

type replaying struct {
	input     any
	corrected bool
}

// WithInput replays the step with a corrected input, of the step's input type.
// Its effect is another one then: it has a new idempotency key. A long step
// begins anew: its cursor was a place in the other input.
func WithInput(in any) ReplayOption {
	return func(r *replaying) { r.input, r.corrected = in, true }
}

// Replay tries the dead step of a failed run again: same run, same place, same
// history, budgets anew. The run is open again, durably, when Replay returns.
// ErrState if it has no dead step, or if its key has started another run since;
// ErrNotFound; ErrTooLarge for a corrected input larger than Config.MaxPayload.
func (e *Engine) Replay(ctx context.Context, id string, by By, opts ...ReplayOption) error {
	var o replaying
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	var input []byte
	if o.corrected {
		b, err := e.payload("corrected input", o.input)
		if err != nil {
			return err
		}
		input = b
	}
	workflow, g, err := e.graphOfRun(ctx, id)
	if err != nil {
		return err
	}
	return e.act(ctx, id, by, func(q *db.Queries, shard int16, jobs []db.LockJobsOfRunRow) error {
		for _, j := range jobs {
			if j.State != stateDead {
				continue
			}
			rs, err := parseRefs(j.Refs)
			if err != nil {
				return err
			}
			if o.corrected && j.Mode == modeSettled {
				return fmt.Errorf("%w: run %s: a person has said that the effect of its dead step happened; it takes no other input", ErrState, id)
			}
			if o.corrected && int(j.Node) >= len(g.Steps) {
				return fmt.Errorf("%w: run %s is dead where its result is made, which takes no input of its own", ErrState, id)
			}
			if err := e.newest(ctx, q, shard, id); err != nil {
				return err
			}
			if o.corrected {
				if err := e.given(true, workflow, g, int(j.Node), input); err != nil {
					return err
				}
				rs = rs.with(ref{corrected(int(j.Node)), j.ID, j.Token + 1})
			}
			_, err = q.ReplayJob(ctx, db.ReplayJobParams{Shard: shard, ID: j.ID, Token: j.Token, Request: requestID(), Actor: by.Actor, Reason: by.Reason,
				Refs: rs.String(), Corrected: o.corrected, Encoding: encodingJSON, Input: input})
			return err
		}
		return fmt.Errorf("%w: run %s has no dead step to replay", ErrState, id)
	})
}

// graphOfRun is the graph that a run follows.
func (e *Engine) graphOfRun(ctx context.Context, id string) (workflow string, g graph, err error) {
	u, err := e.parse(id)
	if err != nil {
		return "", graph{}, err
	}
	r, err := e.db.GetRun(ctx, db.GetRunParams{Shard: shardIn(u), ID: u})
	if errors.Is(err, pgx.ErrNoRows) {
		return "", graph{}, fmt.Errorf("%w: run %s", ErrNotFound, id)
	} else if err != nil {
		return "", graph{}, fmt.Errorf("pawl: reading run %s: %w", id, err)
	}
	g, err = decodeGraph(r.Graph)
	return r.Workflow, g, err
}

// given checks what a person gave against the type of the step that it is for,
// if this process knows it; else the worker that goes on from it does.
func (e *Engine) given(asInput bool, workflow string, g graph, node int, b []byte) error {
	code := e.code[workflow]
	if code == nil || node >= len(g.Steps) {
		return nil
	}
	step := bind(0, g, code).nodes[node].step
	if step == nil {
		return nil
	}
	what, decode := "output", step.DecodeOut
	if asInput {
		what, decode = "corrected input", step.DecodeIn
	}
	if err := <-aside(func() error { _, err := decode(b); return err }); err != nil {
		return fmt.Errorf("the %s is none of step %q: %w", what, step.Name, err)
	}
	return nil
}

// newest refuses a run whose key has started another since: two of one key
// would do everything twice, under different idempotency keys.
func (e *Engine) newest(ctx context.Context, q *db.Queries, shard int16, id string) error {
	u, err := e.parse(id)
	if err != nil {
		return err
	}
	last, err := q.NewestOfKey(ctx, db.NewestOfKeyParams{Shard: shard, ID: u})
	if err != nil {
		return err
	}
	if len(last) == 1 && last[0] != u {
		return fmt.Errorf("%w: run %s: its key has started run %s since", ErrState, id, last[0])
	}
	return nil
}

// Resolution is what a person found out about an uncertain effect.
type Resolution struct {
	happened bool
	output   any
	evidence string
}

// ItHappened: the effect took place, and this is the step's output: a value of
// the step's output type, or its JSON as json.RawMessage. One that is none (a
// field that the type does not have, null for a struct) is refused at once by a
// process that knows the workflow; else the run is back here, with the reason.
// The run carries on from there. The evidence says how that is known.
func ItHappened(output any, evidence string) Resolution { return Resolution{true, output, evidence} }

// ItNeverHappened: the effect did not take place, and the step is tried again
// with the same idempotency key. The evidence says how that is known.
func ItNeverHappened(evidence string) Resolution { return Resolution{evidence: evidence} }

// Resolve settles the uncertain effect of a run by a person's word, which is
// durable when it returns. ErrState if none is uncertain, or a question about it
// is under way just now; ErrNotFound; ErrTooLarge for an output larger than
// Config.MaxPayload.
func (e *Engine) Resolve(ctx context.Context, id string, by By, r Resolution) error {
	if strings.TrimSpace(r.evidence) == "" {
		return fmt.Errorf("pawl: resolving run %s: the evidence is empty: how it is known is recorded", clean(id, 100))
	}
	if err := badText("evidence", r.evidence, 100_000); err != nil {
		return err
	}
	var output []byte
	if r.happened {
		b, err := e.payload("output", r.output)
		if err != nil {
			return err
		}
		output = b
	}
	workflow, g, err := e.graphOfRun(ctx, id)
	if err != nil {
		return err
	}
	return e.act(ctx, id, by, func(q *db.Queries, shard int16, jobs []db.LockJobsOfRunRow) error {
		for _, j := range jobs {
			if j.State != stateUncertain && (j.State != statePending || j.Mode != modeAsk) {
				continue
			}
			rs, err := parseRefs(j.Refs)
			if err != nil {
				return err
			}
			if r.happened {
				if err := e.given(false, workflow, g, int(j.Node), output); err != nil {
					return err
				}
				rs = rs.with(ref{int(j.Node), j.ID, j.Token + 1})
			}
			_, err = q.ResolveJob(ctx, db.ResolveJobParams{Shard: shard, ID: j.ID, Token: j.Token, Request: requestID(), Actor: by.Actor, Reason: by.Reason,
				Evidence: r.evidence, Happened: r.happened, Refs: rs.String(), Encoding: encodingJSON, Output: output})
			return err
		}
		return fmt.Errorf("%w: run %s has no uncertain effect, or it is being asked about just now: try again", ErrState, id)
	})
}

// ReleaseKey allows a key one more start once its run has ended, durably when it
// returns. The new run's effects have new idempotency keys: it charges anew.
// ErrNotFound if no run has the key.
func (e *Engine) ReleaseKey(ctx context.Context, workflow, key string, by By) error {
	if err := errors.Join(by.check(), badText("workflow", workflow, 1000), badText("key", key, 512)); err != nil {
		return err
	}
	_, err := e.db.ReleaseKey(ctx, db.ReleaseKeyParams{Workflow: &workflow, Key: &key, Actor: by.Actor, Reason: by.Reason})
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%w: no run of workflow %q has the key %q", ErrNotFound, workflow, key)
	} else if err != nil {
		return fmt.Errorf("pawl: releasing the key %q of workflow %q: %w", key, workflow, err)
	}
	return nil
}

// act runs a person's act in one transaction that holds the run's jobs, then the run.
func (e *Engine) act(ctx context.Context, id string, by By, do func(*db.Queries, int16, []db.LockJobsOfRunRow) error) error {
	u, err := e.parse(id)
	if err != nil {
		return err
	}
	if err := by.check(); err != nil {
		return err
	}
	shard := shardIn(u)
	err = pgx.BeginTxFunc(ctx, e.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, limits); err != nil {
			return err
		}
		q := db.New(tx)
		jobs, err := q.LockJobsOfRun(ctx, db.LockJobsOfRunParams{Shard: shard, RunID: u})
		if err != nil {
			return err
		}
		if _, err := q.LockRun(ctx, db.LockRunParams{Shard: shard, ID: u}); errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%w: run %s", ErrNotFound, id)
		} else if err != nil {
			return err
		}
		return do(q, shard, jobs)
	})
	if err != nil {
		if errors.Is(err, ErrState) || errors.Is(err, ErrNotFound) {
			return err
		}
		return fmt.Errorf("pawl: acting on run %s: %w", id, err)
	}
	e.listener.tell(wakeWork)
	e.notifier.wake(wakeWork)
	return nil
}

// payload encodes what a person gave.
func (e *Engine) payload(what string, v any) ([]byte, error) {
	if raw, ok := v.(json.RawMessage); ok && !json.Valid(raw) {
		return nil, fmt.Errorf("pawl: the %s is not valid JSON", what)
	}
	b, err := plan.Encode(v)
	if err != nil {
		return nil, fmt.Errorf("pawl: the %s: %w", what, err)
	}
	if len(b) > e.config.MaxPayload {
		return nil, fmt.Errorf("%w: the %s has %d bytes, more than %d", ErrTooLarge, what, len(b), e.config.MaxPayload)
	}
	return b, nil
}
