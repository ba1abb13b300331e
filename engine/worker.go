package engine

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/db"
)

// worker is one call of Work under one session. Its owner is a random id, made
// anew whenever a session was closed or could not be renewed in time.
type worker struct {
	e     *Engine
	owner uuid.UUID
	log   *slog.Logger
	hard  context.Context // what the work runs under; it ends when the drain is over
	soft  context.Context // Work's: nothing new is begun once it has ended

	mu       sync.Mutex
	leases   map[int64]*lease
	bindings map[int64]*binding
	ways     []way // by priority, high first
	targets  map[target]int32
	beaten   moment // before the request that renewed the session last

	commits *group[*change]
	begins  *group[*beginning]
	reads   *group[*reading]
	code    *runners
	execs   sync.WaitGroup // executions
	later   sync.WaitGroup // what the loops have put off

	claimer, keeper, pulse, recovery, reconciler, closer, maintenance, retention *loop

	claimed time.Time // when the claimer asked last; its own
	days    locked    // partitions of the history that somebody holds locked

	draining    atomic.Bool
	resting     atomic.Bool   // the pulse comes late, since nothing is held
	backlog     atomic.Bool   // other work of these queues is due
	inDoubt     atomic.Bool   // a claim's answer was lost
	showing     atomic.Bool   // progress is being written
	renewals    chan struct{} // under way
	sessionLost atomic.Bool
	failing     atomic.Pointer[ailment] // the claimer, but not the database
	gone        chan struct{}           // closed when the session is lost
	stopped     chan struct{}           // closed when the claimer has stopped
	goneOnce    sync.Once
}

// way is a route that this worker may claim, with the first node it knows.
type way struct {
	id       int32
	floor    int32
	priority int16
}

// target is where a step's jobs go; also where others alone may claim them.
type target struct {
	def      int64
	queue    string
	priority int16
}

func newWorker(e *Engine, hard context.Context) *worker {
	w := &worker{e: e, owner: uuid.New(), hard: hard, leases: map[int64]*lease{}, bindings: map[int64]*binding{}, gone: make(chan struct{}), stopped: make(chan struct{}), renewals: make(chan struct{}, renewalsMost), code: &runners{}}
	w.log = e.log.With("worker", e.config.Name)
	w.claimer = newLoop(w.claim)
	w.keeper = newLoop(w.keep)
	w.pulse = newLoop(w.beat)
	w.recovery = newLoop(w.recover)
	w.reconciler = newLoop(w.reconcile)
	w.closer = newLoop(w.closeCancelled)
	w.maintenance = newLoop(w.maintain)
	w.retention = newLoop(w.retire)
	w.commits = newGroup(hard, e, committers, changeSize, w.commit)
	w.reads = newGroup(hard, e, 1, func(*reading) int { return groupBytes / valuesAtOnce }, w.readAll)
	w.begins = newGroup(hard, e, 1, func(*beginning) int { return 200 }, w.commitBegins)
	return w
}

func (w *worker) restart() { w.goneOnce.Do(func() { close(w.gone) }) }

// submit writes a change and waits for the answer, whatever its lease.
func (w *worker) submit(c *change) answer { return w.submitWithin(w.hard, c) }

func (w *worker) submitWithin(ctx context.Context, c *change) answer {
	if c.reason != "" {
		c.reason = w.e.redacted(c.reason)
	}
	since := time.Now()
	if !w.commits.put(ctx, c) {
		return answer{verdict: verdictAbandoned, err: ctx.Err()}
	}
	select {
	case a := <-c.done:
		answers.Put(c.done) // nobody answers twice
		if a.verdict == verdictDone {
			w.e.metrics.committed(since)
		}
		return a
	case <-ctx.Done():
		return answer{verdict: verdictAbandoned, err: ctx.Err()}
	}
}

func (w *worker) claimIn(d time.Duration) { wakeIn(w.claimer, d, w.e.config.Session) }
func (w *worker) askIn(d time.Duration)   { wakeIn(w.reconciler, d, w.e.config.Session) }

// wakeIn wakes a loop after d, if the pulse would not be sooner anyway.
func wakeIn(l *loop, d, most time.Duration) {
	switch {
	case d <= 0:
		l.wake()
	case d <= most:
		time.AfterFunc(d+time.Millisecond, l.wake)
	}
}

func (w *worker) hold(l *lease) {
	w.mu.Lock()
	old, first := w.leases[l.job], len(w.leases) == 0
	w.leases[l.job] = l
	w.mu.Unlock()
	if old != nil && !old.settled.Load() { // taken back by the database's clock, and granted to this worker again
		old.lose()
	}
	if first || l.term < 4*keeperLatest { // else its next look is soon enough
		w.keeper.wake()
	}
	if first && w.resting.Swap(false) {
		wakeIn(w.pulse, w.e.config.Session/3-w.sessionAge(), w.e.config.Session)
	}
}

func (w *worker) replace(old, l *lease) *lease {
	old.cancel(nil)
	w.hold(l)
	return l
}

// drop frees the slot.
func (w *worker) drop(l *lease) {
	l.cancel(nil)
	w.mu.Lock()
	if w.leases[l.job] == l {
		delete(w.leases, l.job)
	}
	w.mu.Unlock()
	if w.backlog.Load() || w.inDoubt.Load() {
		w.claimer.wake()
	}
}

func (w *worker) held() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.leases)
}

func (w *worker) holds(job int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leases[job] != nil
}

func (w *worker) all() []*lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.leases))
}

func (w *worker) renewedSession(sent moment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beaten = sent
}

// sessionAge is how long ago the session was renewed.
func (w *worker) sessionAge() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.beaten.elapsed()
}

// sessionTrust is for how much longer the session may be relied on.
func (w *worker) sessionTrust() time.Duration {
	ttl := w.e.config.Session
	return ttl - margin(ttl) - w.sessionAge()
}

// load reads which graphs and routes there are, and binds the code to them.
func (w *worker) load(ctx context.Context) error {
	known := slices.Sorted(maps.Keys(w.e.code))
	defs, err := w.e.db.Definitions(ctx, known)
	if err != nil {
		return err
	}
	bindings := map[int64]*binding{}
	var ids []int64
	for _, d := range defs {
		g, err := decodeGraph(d.Graph)
		if err != nil {
			w.log.Error("pawl: a stored graph is not understood; its runs are left for others", "workflow", d.Workflow, "definition", d.ID, "error", err)
			continue
		}
		b := bind(d.ID, g, w.e.code[d.Workflow])
		bindings[d.ID] = b
		if b.floor <= b.end() {
			ids = append(ids, d.ID)
			if w.e.own[d.ID] == nil { // an older graph: the code may have moved its steps to other queues
				if err := w.e.db.MakeRoutes(ctx, db.MakeRoutesParams{Definition: d.ID, Queues: queuesOf(w.e.code[d.Workflow])}); err != nil {
					return err
				}
			}
		}
	}
	routes, err := w.e.db.Routes(ctx, ids)
	if err != nil {
		return err
	}
	var ways []way
	targets := map[target]int32{}
	for _, r := range routes {
		targets[target{r.Definition, r.Queue, r.Priority}] = r.ID
		if len(w.e.config.Queues) == 0 || slices.Contains(w.e.config.Queues, r.Queue) {
			ways = append(ways, way{r.ID, int32(bindings[r.Definition].floor), r.Priority})
		}
	}
	slices.SortStableFunc(ways, func(a, b way) int { return int(b.priority) - int(a.priority) })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bindings, w.ways, w.targets = bindings, ways, targets
	return nil
}

// routes is what may be claimed: priorities high first, within one in an
// order that differs from call to call, so that no workflow starves another.
func (w *worker) routes() (ids, floors []int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := 0; i < len(w.ways); {
		j := i
		for j < len(w.ways) && w.ways[j].priority == w.ways[i].priority {
			j++
		}
		start := rand.IntN(j - i)
		for k := range j - i {
			v := w.ways[i+(start+k)%(j-i)]
			ids, floors = append(ids, v.id), append(floors, v.floor)
		}
		i = j
	}
	return ids, floors
}

// routeOf is the route of a run's step in a queue; the run's own if the queue
// has none yet (which a load makes).
func (w *worker) routeOf(g *grant, queue string) int32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id, ok := w.targets[target{g.bind.id, queue, g.priority}]; ok {
		return id
	}
	return g.route
}

func (w *worker) binding(def int64, workflow string) *binding {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b := w.bindings[def]; b != nil && b.workflow == workflow {
		return b
	}
	return nil
}

// shardOrder is all shards, beginning anywhere.
func (w *worker) shardOrder() []int16 {
	if len(w.e.shards) == 1 {
		return w.e.shards
	}
	i := rand.IntN(len(w.e.shards))
	return slices.Concat(w.e.shards[i:], w.e.shards[:i])
}

// maintain does what is needed now and then: partitions are made ahead, newer
// and older graphs are read, what nobody can carry on is reported.
func (w *worker) maintain(ctx context.Context) time.Duration {
	if _, err := w.e.db.MakePartitions(ctx, partitionsAhead); err != nil {
		w.log.Warn("pawl: making partitions of the history ahead; trying again", "error", err)
	}
	if err := w.load(ctx); err != nil {
		return w.failedLoop(ctx, "reading the definitions", err)
	}
	w.claimer.wake()
	for _, shard := range w.e.shards {
		rows, err := w.e.db.StrandedRoutes(ctx, shard)
		if err != nil {
			return w.failedLoop(ctx, "looking for stranded jobs", err)
		}
		for _, r := range rows {
			w.log.Warn("pawl: stranded: no live worker's definition knows the step that these jobs are at; deploy one that does",
				"workflow", r.Workflow, "definition", r.Definition, "step_number", r.Node, "jobs", r.Jobs, "since", r.Since)
		}
	}
	return spread(maintainEvery)
}

const (
	committers      = 2
	partitionsAhead = 30 // days
	maintainEvery   = 5 * time.Minute
	maintainAfter   = 2 * time.Second        // the start: what is missing wakes it sooner
	pulseAfter      = 100 * time.Millisecond // the start: its session has just been opened
)
