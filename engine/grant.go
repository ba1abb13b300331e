package engine

import (
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/plan"
)

// A claim grants plan.DefaultLease and plan.DefaultMaxRuntime before the step is
// known; a step that asks for more, or for less, is given it by Begin.

// The modes of a job.
const (
	modeDo      = "do"      // run the step
	modeAsk     = "ask"     // ask what became of its effect
	modeSettled = "settled" // a person said what became of it: carry on from there
)

// grant is a leased position of a run: where it stands and what is known of
// it. The values are the run's input and outputs of earlier steps, encoded.
type grant struct {
	shard int16
	job   int64
	run   uuid.UUID
	token int64
	route int32
	bind  *binding
	node  int
	path  string
	mode  string
	refs  refs

	attempt, transients, unknowns, questions int32
	effectGen                                int32
	cursorSeq                                int64
	grantedAt                                time.Time // by the database
	failedAt, uncertainAt, effectAt          *time.Time
	effectHash                               []byte

	ordering   string
	caller     *string
	generation int32
	priority   int16
	cancelling bool
	values     map[int][]byte

	trace     carried           // as it is stored with the run
	parent    trace.SpanContext // of its attempts' spans
	due       time.Time         // before it was granted
	createdAt time.Time         // the run

	sent          moment        // before the request that granted it
	term, runtime time.Duration // of the lease, and the cap
	shaped        bool          // both are the step's own, and its effect is stored

	code  *runners  // where the run's code is called here
	hops  int       // hand-overs since it was claimed
	since time.Time // when that was
}

func (w *worker) granted(r db.ClaimRow, b *binding, sent moment) (*grant, error) {
	rs, err := parseRefs(r.Refs)
	if err != nil {
		return nil, err
	}
	g := &grant{
		shard: r.Shard, job: r.ID, run: r.RunID, token: r.Token, route: r.Route, bind: b, node: int(r.Node), path: r.Path, mode: r.Mode, refs: rs,
		attempt: r.Attempt, transients: r.Transients, unknowns: r.Unknowns, questions: r.Questions, effectGen: r.EffectGen, cursorSeq: r.CursorSeq,
		grantedAt: *r.GrantedAt, failedAt: r.FailedAt, uncertainAt: r.UncertainAt, effectAt: r.EffectAt, effectHash: r.EffectHash,
		ordering: r.Ordering, caller: r.Key, generation: r.Generation, priority: r.Priority, cancelling: r.Cancelling,
		trace: carried{r.Traceparent, r.Tracestate}, due: r.DueAt, createdAt: r.CreatedAt,
		values: map[int][]byte{}, sent: sent, term: plan.DefaultLease, runtime: plan.DefaultMaxRuntime, since: time.Now(),
	}
	if r.Encoding == encodingJSON {
		g.values[plan.Input] = r.Input
	}
	return g, nil
}

// step is the step to run; nil at the place where the result is made, and for
// a step that is unknown here.
func (g *grant) step() *plan.Step {
	if g.bind == nil || g.node >= g.bind.end() {
		return nil
	}
	return g.bind.nodes[g.node].step
}

func (g *grant) name() string { return g.bind.graph.name(g.node) }

// key is the idempotency key of the effect at the place.
func (g *grant) key() []byte {
	e := effect{workflow: g.bind.workflow, ordering: g.ordering, caller: g.run.String(), generation: g.generation,
		step: g.name(), path: g.path, effectGen: g.effectGen, direction: modeDo}
	if g.caller != nil {
		e.caller, e.hasKey = *g.caller, true
	}
	return e.key()
}

func (g *grant) keyText() string { return keyText(g.key()) }

// now is the database's time, as far as this process can tell.
func (g *grant) now() time.Time { return g.grantedAt.Add(g.sent.elapsed()) }
