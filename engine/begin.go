package engine

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/fault"
	"github.com/pawlworks/pawl/internal/plan"
)

// beginning asks for the lease that a step wants, stores its effect's key and
// input hash, and records that the body of a LookUp or Manual effect is about
// to be called: a lease that ends before that is an ordinary retry.
type beginning struct {
	lease     *lease
	runtime   time.Duration
	begun     bool
	atExpiry  string
	key, hash []byte
	done      chan begunAnswer
}

type begunAnswer struct {
	verdict  string
	hash     []byte // of the first grant's input
	effectAt *time.Time
	err      error
}

// mustBegin tells whether the lease has to be shaped before the body is called.
func (g *grant) mustBegin(step *plan.Step) bool {
	switch {
	case step.Effect == plan.LookUp || step.Effect == plan.Manual:
		return true
	case g.shaped:
		return false
	}
	return step.Effect != plan.NoEffect || step.Lease != plan.DefaultLease || step.MaxRuntime != plan.DefaultMaxRuntime
}

func atExpiry(step *plan.Step) string {
	switch step.Effect {
	case plan.LookUp:
		return "ask"
	case plan.Manual:
		return "person"
	}
	return "retry"
}

// begin waits until it is durable. False: the lease is lost, or the process stops.
func (w *worker) begin(l *lease, g *grant, step *plan.Step, runtime time.Duration, key, hash []byte) (begunAnswer, bool) {
	external := step.Effect == plan.LookUp || step.Effect == plan.Manual
	if hash == nil { // no effect was declared: there is no key to be stored
		key = nil
	}
	b := &beginning{lease: l, runtime: runtime, begun: external, atExpiry: atExpiry(step), key: key, hash: hash, done: make(chan begunAnswer, 1)}
	fault.Point(fault.BeforeBegin)
	if !w.begins.put(w.hard, b) {
		return begunAnswer{}, false
	}
	select {
	case a := <-b.done:
		fault.Point(fault.AfterBegin)
		if a.verdict != verdictDone {
			return a, false
		}
		if external && (a.hash == nil || bytes.Equal(a.hash, hash)) && !l.beginBody(g) {
			return begunAnswer{verdict: verdictLost}, false
		}
		return a, true
	case <-l.ctx.Done(): // lost, cancelled or drained: nothing has begun in this process
		return begunAnswer{verdict: verdictLost}, false
	}
}

// commitBegins is the batch writer of beginnings; the rules are the committer's.
func (w *worker) commitBegins(ctx context.Context, q *db.Queries, bs []*beginning) {
	byShard := map[int16][]*beginning{}
	for _, b := range bs {
		byShard[b.lease.shard] = append(byShard[b.lease.shard], b)
	}
	for shard, bs := range byShard {
		slices.SortFunc(bs, func(a, b *beginning) int { return cmp.Compare(a.lease.job, b.lease.job) })
		w.beginShard(ctx, q, shard, bs, busySoonest)
	}
}

func (w *worker) beginShard(ctx context.Context, q *db.Queries, shard int16, bs []*beginning, busyWait time.Duration) {
	p := db.BeginParams{Shard: shard, Owner: w.owner}
	for _, b := range bs {
		p.Ids = append(p.Ids, b.lease.job)
		p.Tokens = append(p.Tokens, b.lease.token)
		p.LeaseMs = append(p.LeaseMs, ms(b.lease.length))
		p.RuntimeMs = append(p.RuntimeMs, ms(b.runtime))
		p.Begun = append(p.Begun, b.begun)
		p.AtExpiry = append(p.AtExpiry, b.atExpiry)
		p.EffectKeys = append(p.EffectKeys, b.key)
		p.EffectHashes = append(p.EffectHashes, b.hash)
	}
	var again []*beginning
	sent := moments()
	rows, err := q.Begin(ctx, p)
	if refused(err) && len(bs) == 1 {
		bs[0].done <- begunAnswer{verdict: verdictRefused, err: err}
		return
	}
	if refused(err) { // halved until the culprit stands alone
		w.beginShard(ctx, q, shard, bs[:len(bs)/2], busyWait)
		w.beginShard(ctx, q, shard, bs[len(bs)/2:], busyWait)
		return
	}
	if err != nil { // written twice it is written once: simply ask again
		w.log.Warn("pawl: beginning steps; trying again until the database answers", "steps", len(bs), "error", err)
		again, busyWait = bs, max(busyWait, downSoonest)
	}
	byJob := map[int64]db.BeginRow{}
	for _, r := range rows {
		byJob[*r.ID] = r
	}
	for _, b := range bs {
		switch r, ok := byJob[b.lease.job]; {
		case err != nil:
		case ok && *r.Verdict == verdictDone:
			b.lease.reshape(sent, r.ExpiresAt.Sub(*r.Now), r.DeadlineAt.Sub(*r.Now)+time.Time(sent).Sub(time.Time(b.lease.granted)))
			b.done <- begunAnswer{verdict: verdictDone, hash: r.EffectHash, effectAt: r.EffectAt}
		case ok && *r.Verdict == verdictLost:
			b.done <- begunAnswer{verdict: verdictLost}
		default:
			again = append(again, b)
		}
	}
	again = slices.DeleteFunc(again, func(b *beginning) bool { return b.lease.ctx.Err() != nil })
	if len(again) > 0 {
		w.later.Go(func() {
			if sleep(ctx, spread(busyWait)) {
				w.beginShard(ctx, w.e.db, shard, again, min(2*busyWait, busyLatest))
			}
		})
	}
}
