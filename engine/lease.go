package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawlworks/pawl/internal/plan"
	"github.com/pawlworks/pawl/steps"
)

// lease is this process's hold on a job, by its own clocks, which serve only
// to give up early: what counts is the row and the database's clock.
//
// Invariants: it is trusted from the moment before the request that granted or
// renewed it was sent; when that trust ends its context is cancelled with
// ErrLeaseLost, a margin before the database would give the job away. Progress
// alone renews it. It is settled once: by the result of its body, or by a
// drain that gave up waiting.
type lease struct {
	shard int16
	job   int64
	run   uuid.UUID
	token int64
	step  *plan.Step // nil: the place of the result
	mode  string     // of the job, as it was granted
	at    *grant     // where it stands, once its effect may have begun

	mu        sync.Mutex
	sent      moment        // of the request that granted or renewed it
	term      time.Duration // from then on
	runtime   time.Duration // from granted on: the cap across renewals
	granted   moment
	length    time.Duration // what a renewal asks for
	heartbeat time.Duration
	renewed   int64  // the progress that the last renewal was for
	asked     moment // when the last was asked for

	progress atomic.Int64 // rises with the cursor, an acknowledgement, a returned body
	waiting  atomic.Bool  // the body has returned, its result awaits commit
	begun    atomic.Bool  // the body of a LookUp or Manual effect may have begun
	settled  atomic.Bool
	lost     atomic.Bool

	span trace.Span // of the attempt; held under mu

	ctx    context.Context
	cancel context.CancelCauseFunc
	shown  atomic.Pointer[[2]int64] // progress for show: done, total
	saved  atomic.Pointer[[2]int64] // and what of it is in the database
}

func newLease(ctx context.Context, g *grant) *lease {
	l := &lease{shard: g.shard, job: g.job, run: g.run, token: g.token, step: g.step(), mode: g.mode, granted: g.sent, sent: g.sent,
		term: g.term, runtime: g.runtime, length: plan.DefaultLease, heartbeat: plan.DefaultLease / 3}
	if l.step != nil {
		l.length, l.heartbeat = l.step.Lease, l.step.Heartbeat
	}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	return l
}

func (l *lease) traced(span trace.Span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.span = span
}

// traceOf is the attempt's span; nil before it was begun.
func (l *lease) traceOf() trace.Span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.span
}

// within adds the attempt's span to what users' code is called with: theirs nest beneath it.
func (l *lease) within(ctx context.Context) context.Context {
	if span := l.traceOf(); span != nil && span.SpanContext().IsValid() {
		return trace.ContextWithSpan(ctx, span)
	}
	return ctx
}

// event notes something in the attempt's span.
func (l *lease) event(name string) {
	if span := l.traceOf(); span != nil && span.IsRecording() {
		span.AddEvent(name)
	}
}

// trusted is for how much longer the lease may be relied on.
func (l *lease) trusted(now moment) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.term - l.sent.until(now)
	if cap := l.runtime - l.granted.until(now); cap < left {
		left = cap
	}
	return left - l.margin()
}

// termNow is how long the lease was granted or renewed for.
func (l *lease) termNow() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term
}

// margin is of the term or of the cap, if that is shorter. Held under mu.
func (l *lease) margin() time.Duration { return margin(min(l.length, l.runtime)) }

// bodyTime is for how much longer a body may run: it is told to stop a margin
// before the lease can't be trusted any more.
func (l *lease) bodyTime() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.runtime-l.granted.elapsed()-2*l.margin(), 0)
}

// extend notes that a request sent then has moved the expiry on.
func (l *lease) extend(sent moment, term time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sent.after(l.sent) {
		l.sent, l.term = sent, term
	}
}

// reshape notes what Begin has set.
func (l *lease) reshape(sent moment, term, runtime time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent, l.term, l.runtime = sent, term, runtime
}

// beatIn is when a renewal is due, if there is progress to renew it for. One
// that was asked for and is not answered is asked for again on another
// connection, while there is time.
func (l *lease) beatIn(now moment) (in time.Duration, progressed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in = l.heartbeat - l.sent.until(now)
	if wait := min(l.heartbeat/2, askAgain) - l.asked.until(now); wait > in {
		in = wait
	}
	return in, l.progress.Load() > l.renewed || l.waiting.Load()
}

const askAgain = 5 * time.Second

// asks notes that a renewal is being asked for.
func (l *lease) asks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = moments()
}

// renewedFor notes what progress the lease has been renewed for.
func (l *lease) renewedFor(progress int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = max(l.renewed, progress)
}

// answered lets it be asked for again at once.
func (l *lease) answered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = moment{}
}

// lose ends the attempt: nothing that it reports counts any more.
func (l *lease) lose() {
	if !l.lost.Swap(true) {
		l.cancel(steps.ErrLeaseLost)
	}
}

// beginBody notes that a body which must not be interrupted is called now, and
// where; false if the attempt has been told to stop before.
func (l *lease) beginBody(g *grant) bool {
	at := *g
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return false
	}
	l.at = &at
	l.begun.Store(true)
	return true
}

// interrupt tells the body to stop, if it may be told.
func (l *lease) interrupt(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.interruptible() {
		l.cancel(cause)
	}
}

// interruptible tells whether a body may be told to stop before its time. The
// effect of a LookUp or Manual step is waited for instead, and so is a question.
func (l *lease) interruptible() bool { return !l.begun.Load() && l.mode != modeAsk }

// settle is true for the first caller only.
func (l *lease) settle() bool { return !l.settled.Swap(true) }
