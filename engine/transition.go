package engine

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/fault"
	"github.com/pawlworks/pawl/internal/plan"
)

// The committer: finished steps queue in memory, and are written in batches.
//
// Invariants: a batch has one shard and at most one item a job, in the order
// of the jobs' numbers (lock order); nothing is answered before the commit has;
// a batch that PostgreSQL refuses for a value is halved until the culprit
// stands alone; a row that somebody else holds is asked for again apart from
// the rest; an answer that was lost is looked up in the history, where only
// row token+1 can have ended a lease of token.

const (
	busySoonest = 2 * time.Millisecond
	busyLatest  = 200 * time.Millisecond
	downSoonest = 20 * time.Millisecond
	downLatest  = 2 * time.Second
)

// spread is d give or take a third, so that not everybody comes at once.
func spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.7 + 0.6*rand.Float64()))
}

func changeSize(c *change) int { return len(c.output) + len(c.result) + len(c.reason) + 200 }

// commit writes changes and answers each.
func (w *worker) commit(ctx context.Context, q *db.Queries, cs []*change) {
	byShard := map[int16][]*change{}
	for _, c := range cs {
		byShard[c.shard] = append(byShard[c.shard], c)
	}
	for shard, cs := range byShard {
		slices.SortFunc(cs, func(a, b *change) int { return cmp.Compare(a.job, b.job) })
		if cs = w.avoid(ctx, shard, cs); len(cs) == 0 {
			continue
		}
		fault.Point(fault.BeforeCommit)
		w.commitShard(ctx, q, shard, cs, busySoonest)
	}
}

func (w *worker) commitShard(ctx context.Context, q *db.Queries, shard int16, cs []*change, busyWait time.Duration) {
	w.e.metrics.batch.Record(ctx, int64(len(cs)))
	pause := downSoonest
	for {
		sent := moments()
		rows, err := q.Transition(ctx, w.params(shard, cs))
		if err == nil {
			fault.Point(fault.AfterCommit)
			w.answer(ctx, q, shard, cs, rows, sent, busyWait)
			return
		}
		switch {
		case refused(err) && len(cs) == 1:
			cs[0].done <- answer{verdict: verdictRefused, err: err}
			return
		case noPartition(err) && len(cs) == 1:
			w.log.Error("pawl: the history has no partition for a run's day; trying again until it has", "run_id", cs[0].run, "error", err)
			w.maintenance.wake() // which makes some, if it may
			w.apart(ctx, shard, cs, downLatest, busyWait)
			return
		case refused(err), noPartition(err):
			w.commitShard(ctx, q, shard, cs[:len(cs)/2], busyWait)
			w.commitShard(ctx, q, shard, cs[len(cs)/2:], busyWait)
			return
		}
		for _, c := range cs {
			c.doubt = true
		}
		w.log.Warn("pawl: writing finished steps; trying again until it is done", "steps", len(cs), "error", err)
		if stuck(err) {
			days := byDay(cs, func(c *change) uuid.UUID { return c.run })
			for _, cs := range days {
				if len(days) == 1 {
					w.days.found(cs[0].run)
				}
				w.apart(ctx, shard, cs, pause, busyWait)
			}
			return
		}
		if closedPool(err) || !sleep(ctx, spread(pause)) {
			for _, c := range cs {
				c.done <- answer{verdict: verdictAbandoned, err: err}
			}
			return
		}
		pause = min(2*pause, downLatest)
	}
}

// avoid puts apart what belongs to days that are locked, and returns the rest.
func (w *worker) avoid(ctx context.Context, shard int16, cs []*change) []*change {
	if !w.days.any() {
		return cs
	}
	var rest, wait []*change
	for _, c := range cs {
		if w.days.has(c.run) {
			wait = append(wait, c)
		} else {
			rest = append(rest, c)
		}
	}
	if len(wait) > 0 {
		w.apart(ctx, shard, wait, busyLatest, busySoonest)
	}
	return rest
}

func (w *worker) answer(ctx context.Context, q *db.Queries, shard int16, cs []*change, rows []db.TransitionRow, sent moment, busyWait time.Duration) {
	byJob := make(map[int64]*db.TransitionRow, len(rows))
	for i := range rows {
		byJob[*rows[i].ID] = &rows[i]
	}
	var again []*change
	for _, c := range cs {
		r, ok := byJob[c.job]
		if ok && *r.Verdict == verdictBusy {
			w.e.metrics.busy.Add(ctx, 1)
		}
		switch {
		case ok && *r.Verdict == verdictDone:
			c.done <- c.doneBy(r, sent)
		case ok && *r.Verdict == verdictLost && !c.doubt:
			c.done <- answer{verdict: verdictLost}
		case ok && *r.Verdict == verdictLost:
			if a, err := w.lookUp(ctx, q, c); err == nil {
				c.done <- a
			} else {
				again = append(again, c)
			}
		default:
			again = append(again, c)
		}
	}
	if len(again) == 0 {
		return
	}
	w.apart(ctx, shard, again, busyWait, min(2*busyWait, busyLatest))
}

// apart writes changes again after a while, apart from the others, which go on.
func (w *worker) apart(ctx context.Context, shard int16, cs []*change, wait, busyWait time.Duration) {
	w.later.Go(func() {
		if !sleep(ctx, spread(wait)) {
			for _, c := range cs {
				c.done <- answer{verdict: verdictAbandoned, err: ctx.Err()}
			}
			return
		}
		w.commitShard(ctx, w.e.db, shard, cs, busyWait)
	})
}

// doneBy is the answer to a change that was written by a request sent then.
func (c *change) doneBy(r *db.TransitionRow, sent moment) answer {
	a := answer{verdict: verdictDone, state: text(r.State), sent: sent}
	if a.state == stateRunning {
		a.grantedAt, a.term, a.runtime = *r.Now, c.term, c.runtime
		if c.key != nil {
			a.effectAt = r.Now
		}
	}
	return a
}

// lookUp reads what became of a change whose answer was lost. Its own request
// means success, and if the job stands under this owner with token+1 the worker
// carries on with the successor; another's row, or none, means lease lost
// (none and a live lease would have been written by now).
func (w *worker) lookUp(ctx context.Context, q *db.Queries, c *change) (answer, error) {
	h, err := q.Written(ctx, db.WrittenParams{Shard: c.shard, RunID: c.run, Job: c.job, Token: c.token + 1})
	if errors.Is(err, pgx.ErrNoRows) || err == nil && h.Request != c.request {
		return answer{verdict: verdictLost}, nil
	}
	if err != nil {
		return answer{}, err
	}
	sent := moments()
	j, err := q.ReadJob(ctx, db.ReadJobParams{Shard: c.shard, ID: c.job})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return answer{verdict: verdictDone, state: stateGone}, nil
	case err != nil:
		return answer{}, err
	case j.Token == c.token+1 && j.State == stateRunning && *j.Owner == w.owner && j.ExpiresAt.After(j.Now):
		return answer{verdict: verdictDone, state: stateRunning, grantedAt: *j.GrantedAt, sent: sent, effectAt: j.EffectAt,
			term: j.ExpiresAt.Sub(j.Now), runtime: j.DeadlineAt.Sub(j.Now)}, nil
	case j.Token == c.token+1 && j.State != stateRunning:
		return answer{verdict: verdictDone, state: j.State}, nil
	}
	// It was written, and others have gone on from there, or will: its lease has run out.
	return answer{verdict: verdictDone, state: statePending}, nil
}

func (w *worker) params(shard int16, cs []*change) db.TransitionParams {
	n := len(cs)
	p := db.TransitionParams{Shard: shard, Owner: w.owner, Encoding: encodingJSON, LeaseMs: ms(plan.DefaultLease), RuntimeMs: ms(plan.DefaultMaxRuntime),
		Ids: make([]int64, n), Tokens: make([]int64, n), Requests: make([]int64, n), ToStates: make([]string, n), Nodes: make([]int32, n),
		Refs: make([]string, n), Outputs: make([][]byte, n), Results: make([][]byte, n), More: make([]string, n)}
	for i, c := range cs {
		p.Ids[i], p.Tokens[i], p.Requests[i], p.ToStates[i], p.Nodes[i] = c.job, c.token, c.request, c.to, int32(c.node)
		p.Refs[i], p.Outputs[i], p.Results[i], p.More[i] = c.refs.String(), c.output, c.result, c.more()
	}
	return p
}

// more is what there is to say of a change beside what every one has: nothing
// of a step that was completed and whose successor starts anew.
func (c *change) more() string {
	if c.event == "completed" && c.advance && c.writer == writerWorker && c.mode == modeDo && c.route == c.from && c.delay == 0 && c.class == "" && c.key == nil &&
		(c.to == stateGone || c.to == statePending && c.attempt == 0 || c.to == stateRunning && c.attempt == 1 && c.term == plan.DefaultLease && c.runtime == plan.DefaultMaxRuntime) {
		return ""
	}
	m := more{Event: c.event, Advance: c.advance, Mode: c.mode, Class: c.class, Code: c.code, Reason: c.reason, Route: c.route,
		DelayMs: delayMs(c.delay), Attempt: c.attempt, Transients: c.transients, Unknowns: c.unknowns, Questions: c.questions}
	if c.writer != writerWorker {
		m.Writer = c.writer
	}
	if c.to == stateRunning {
		m.LeaseMs, m.RuntimeMs = ms(c.term), ms(c.runtime)
	}
	if c.key != nil {
		m.EffectKey, m.EffectHash = hex.EncodeToString(c.key), hex.EncodeToString(c.hash)
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // texts and numbers
	}
	return string(b)
}

// more is read by the statement Transition; what is left out has its default there.
type more struct {
	Event      string `json:"event"`
	Advance    bool   `json:"advance"`
	Mode       string `json:"mode"`
	Writer     string `json:"writer,omitempty"`
	Class      string `json:"class,omitempty"`
	Code       string `json:"code,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Route      int32  `json:"route"`
	DelayMs    int64  `json:"delay_ms"`
	LeaseMs    int64  `json:"lease_ms,omitempty"`
	RuntimeMs  int64  `json:"runtime_ms,omitempty"`
	Attempt    int32  `json:"attempt"`
	Transients int32  `json:"transients"`
	Unknowns   int32  `json:"unknowns"`
	Questions  int32  `json:"questions"`
	EffectKey  string `json:"effect_key,omitempty"`
	EffectHash string `json:"effect_hash,omitempty"`
}

func delayMs(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return ms(d)
}
