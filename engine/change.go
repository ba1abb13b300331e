package engine

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/plan"
	"github.com/pawlworks/pawl/steps"
)

// change is one transition to be written: how an attempt ends and where the
// job stands then. All of them go through the one statement Transition.
type change struct {
	shard      int16
	job        int64
	run        uuid.UUID
	token      int64
	request    int64  // tells a transition that was written from one that was not
	to         string // the job's state; gone: its run has succeeded; dead: its run has failed
	event      string
	writer     string
	class      string
	code       string
	reason     string
	output     []byte
	result     []byte // the run's, when it is no step's output
	advance    bool   // to the next place: budgets and effect start anew
	mode       string
	node       int
	refs       refs
	route      int32
	from       int32         // the route it was on
	delay      time.Duration // until due; negative: a person must act
	attempt    int32
	transients int32
	unknowns   int32
	questions  int32

	// Of the lease on the successor, when to is running.
	term, runtime time.Duration
	key, hash     []byte // of its effect
	next          *plan.Step

	doubt bool        // it was sent, and the answer was lost
	done  chan answer // has room for the one answer
}

// answers are channels whose one answer was taken, for other changes.
var answers = sync.Pool{New: func() any { return make(chan answer, 1) }}

// Verdicts of a fenced statement.
const (
	verdictDone      = "done"
	verdictBusy      = "busy"
	verdictLost      = "lost"
	verdictRefused   = "refused"   // PostgreSQL does not take a value of it
	verdictAbandoned = "abandoned" // the process stops before the database has answered
)

type answer struct {
	verdict       string
	state         string
	grantedAt     time.Time
	effectAt      *time.Time
	sent          moment
	term, runtime time.Duration
	err           error
}

const (
	statePending   = "pending"
	stateRunning   = "running"
	stateUncertain = "uncertain"
	stateDead      = "dead"
	stateGone      = "gone"

	writerWorker     = "worker"
	writerReconciler = "reconciler"
)

// changed is a change that stays at its place.
func (g *grant) changed(to, event string) *change {
	c := &change{
		shard: g.shard, job: g.job, run: g.run, token: g.token, request: requestID(), to: to, event: event, writer: writerWorker,
		mode: modeDo, node: g.node, refs: g.refs, route: g.route, from: g.route, attempt: g.attempt, transients: g.transients, unknowns: g.unknowns,
		questions: g.questions, done: answers.Get().(chan answer),
	}
	if g.mode == modeAsk {
		c.writer = writerReconciler
	}
	return c
}

// handBack gives the job to others and costs no attempt.
func (g *grant) handBack(after time.Duration, why string) *change {
	c := g.changed(statePending, "handed_back")
	c.mode, c.delay, c.reason = g.mode, after, why
	if g.mode == modeDo {
		c.attempt--
	}
	return c
}

// because adds the error to a change.
func (c *change) because(e *steps.Error) *change {
	c.class, c.code, c.reason = string(e.Class), clean(e.Code, 64), clean(reasonOf(e), maxReason)
	return c
}

func reasonOf(e *steps.Error) string {
	if e.Err == nil {
		return e.Error()
	}
	return e.Err.Error()
}

// unsure is the state uncertain: to be asked about after a while, or to be
// decided by a person if after is negative.
func (g *grant) unsure(after time.Duration, e *steps.Error) *change {
	c := g.changed(stateUncertain, "uncertain")
	c.delay = after
	if c.because(e); c.class != string(steps.ClassUncertain) {
		c.class = string(steps.ClassUncertain)
	}
	return c
}

func (g *grant) dead(e *steps.Error) *change {
	return g.changed(stateDead, "dead").because(e)
}

// shortestSnooze keeps a step that snoozes for no time at all from spinning.
const shortestSnooze = 100 * time.Millisecond

const person = -1 * time.Nanosecond // as a delay: until a person acts

// failed decides what comes of an error of a step's attempt.
func (g *grant) failed(step *plan.Step, begun bool, e *steps.Error) *change {
	effect := plan.NoEffect
	transient, unknown := plan.DefaultTransient, plan.DefaultUnknown // where the result is made
	if step != nil {
		effect, transient, unknown = step.Effect, step.Transient, step.Unknown
	}
	external := effect == plan.LookUp || effect == plan.Manual
	if external && begun && (!e.Marked() || e.Class == steps.ClassUncertain || e.Class == steps.ClassUnknown) {
		return g.unsure(firstQuestion(step), e)
	}
	switch e.Class {
	case steps.ClassPermanent:
		return g.dead(e)
	case steps.ClassSnooze:
		c := g.changed(statePending, "snoozed").because(e)
		c.delay, c.attempt = max(e.Delay, shortestSnooze), c.attempt-1
		return c
	case steps.ClassUncertain:
		if effect != plan.Idempotent { // the target of an idempotent one is simply told again
			return g.unsure(person, e)
		}
		return g.again(transient, e, &g.transients)
	case steps.ClassUnknown:
		return g.again(unknown, e, &g.unknowns)
	}
	return g.again(transient, e, &g.transients)
}

// firstQuestion is when the reconciler asks first: at once. Or a person must.
func firstQuestion(step *plan.Step) time.Duration {
	if step.Effect == plan.LookUp {
		return 0
	}
	return person
}

// again is a retry, or dead if the budget is spent. spent is one of g's counters.
func (g *grant) again(budget plan.Retry, e *steps.Error, spent *int32) *change {
	*spent++
	over := ""
	switch {
	case int(*spent) >= budget.Attempts:
		over = fmt.Sprintf("%d failures of class %s, the budget's last: ", *spent, e.Class)
	case budget.Within > 0 && g.failedAt != nil && g.now().Sub(*g.failedAt) > budget.Within:
		over = fmt.Sprintf("failing for longer than %v: ", budget.Within)
	}
	if over != "" {
		c := g.dead(e)
		c.reason = clean(over+c.reason, maxReason)
		return c
	}
	c := g.changed(statePending, "retried").because(e)
	if c.delay = e.Delay; c.delay <= 0 {
		c.delay = budget.After(int(*spent))
	}
	return c
}

// requestID is random; it tells requests apart and keeps nothing secret.
func requestID() int64 { return rand.Int64() }
