package telemetry

import "go.opentelemetry.io/otel/attribute"

// Metric is an instrument's type, name, unit and meaning, and the attributes by
// which its points are told apart; docs/metrics.md tells the same.
type Metric struct {
	Type
	Name, Unit, About string
	By                []attribute.Key
}

// Type is what an instrument does with what it is told.
type Type string

// The types there are.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Attributes, as many metrics have them.
var (
	byAttempt = []attribute.Key{Workflow, Step, Queue, Outcome}
	byCause   = []attribute.Key{Workflow, Step, ErrorType}
	byStep    = []attribute.Key{Workflow, Step}
	byQueue   = []attribute.Key{Queue}
	byWorker  = []attribute.Key{Worker}
	byHolder  = []attribute.Key{Kind, Holder}
)

// The metrics of a process that works.
var (
	Transitions       = Metric{Counter, "pawl.transitions", "{attempt}", "attempts that have ended, by what became of them", byAttempt}
	Retries           = Metric{Counter, "pawl.retries", "{attempt}", "attempts that failed and are tried again", []attribute.Key{Workflow, Step, ErrorType, Attempt}}
	Dead              = Metric{Counter, "pawl.dead", "{job}", "steps that have died", byCause}
	Uncertain         = Metric{Counter, "pawl.uncertain", "{effect}", "effects whose outcome has become unknown", byCause}
	Reconciliations   = Metric{Counter, "pawl.reconciliations", "{question}", "look-ups of uncertain effects, by what they said", byAttempt}
	Lapses            = Metric{Counter, "pawl.lapses", "{lease}", "leases that ran out and were taken back by this process", byStep}
	FenceRefusals     = Metric{Counter, "pawl.fence.refusals", "{attempt}", "outcomes that were not written, since the lease had been lost", byAttempt}
	HeartbeatFailures = Metric{Counter, "pawl.heartbeat.failures", "{heartbeat}", "renewals of leases and sessions that failed", []attribute.Key{Kind}}
	BusyRows          = Metric{Counter, "pawl.rows.busy", "{row}", "times that a job's row was held locked by somebody else when its outcome was to be written", nil}
	ClaimLatency      = Metric{Histogram, "pawl.claim.latency", "s", "from due to leased", byQueue}
	AttemptDuration   = Metric{Histogram, "pawl.attempt.duration", "s", "from leased until the outcome was durable", byAttempt}
	CommitDuration    = Metric{Histogram, "pawl.commit.duration", "s", "from an outcome until it was durable", nil}
	ClaimDuration     = Metric{Histogram, "pawl.claim.duration", "s", "a statement that claims", nil}
	BatchSize         = Metric{Histogram, "pawl.commit.batch", "{attempt}", "outcomes that one transaction was to write", nil}

	Slots        = Metric{Gauge, "pawl.slots", "{step}", "steps that this process may run at once", byWorker}
	SlotsUsed    = Metric{Gauge, "pawl.slots.used", "{step}", "steps that hold a lease here", byWorker}
	NearExpiry   = Metric{Gauge, "pawl.leases.expiring", "{lease}", "leases held here that have less than a third of their term left", byWorker}
	PoolConns    = Metric{Gauge, "pawl.pool.connections", "{connection}", "connections of the pool, by state", []attribute.Key{Worker, ConnState}}
	PoolLimit    = Metric{Gauge, "pawl.pool.limit", "{connection}", "connections that the pool may open", byWorker}
	PoolWaits    = Metric{Counter, "pawl.pool.waits", "{wait}", "times that a connection was waited for", byWorker}
	PoolWaitTime = Metric{Counter, "pawl.pool.wait.duration", "s", "time spent waiting for a connection", byWorker}
)

// The metrics of the database, which every process that works tells alike.
var (
	QueueDue            = Metric{Gauge, "pawl.queue.due", "{job}", "jobs that are due, a thousand at most of each workflow, priority and shard", byQueue}
	QueueOldest         = Metric{Gauge, "pawl.queue.oldest", "s", "for how long the oldest due job has been due", byQueue}
	QueueStranded       = Metric{Gauge, "pawl.queue.stranded", "{job}", "due jobs that no live worker takes", byQueue}
	QueueStrandedOldest = Metric{Gauge, "pawl.queue.stranded.oldest", "s", "for how long the oldest of those has been due", byQueue}
	DeadJobs            = Metric{Gauge, "pawl.dead.jobs", "{job}", "steps that are dead, a thousand at most of each shard", nil}
	DeadOldest          = Metric{Gauge, "pawl.dead.oldest", "s", "for how long the oldest has been dead", nil}
	UncertainEffects    = Metric{Gauge, "pawl.uncertain.effects", "{effect}", "effects whose outcome is unknown, a thousand at most of each shard", nil}
	UncertainOldest     = Metric{Gauge, "pawl.uncertain.oldest", "s", "for how long the oldest has been uncertain", nil}
	UncertainOverdue    = Metric{Gauge, "pawl.uncertain.overdue", "s", "for how long a look-up that is due has not been made", nil}
	SnapshotAge         = Metric{Gauge, "pawl.snapshot.age", "s", "age of the transaction that holds the oldest snapshot, and whose it is", byHolder}
	SnapshotLag         = Metric{Gauge, "pawl.snapshot.transactions", "{transaction}", "transactions begun since the oldest snapshot was taken, and whose it is", byHolder}
	DeadRows            = Metric{Gauge, "pawl.job.dead_rows", "{row}", "dead rows of the jobs' table, by PostgreSQL's count", nil}
	PartitionsAhead     = Metric{Gauge, "pawl.partitions.ahead", "d", "days after today that have a partition of the history", nil}
)

// Metrics is all of them.
var Metrics = []Metric{Transitions, Retries, Dead, Uncertain, Reconciliations, Lapses, FenceRefusals, HeartbeatFailures, BusyRows,
	ClaimLatency, AttemptDuration, CommitDuration, ClaimDuration, BatchSize,
	Slots, SlotsUsed, NearExpiry, PoolConns, PoolLimit, PoolWaits, PoolWaitTime,
	QueueDue, QueueOldest, QueueStranded, QueueStrandedOldest, DeadJobs, DeadOldest, UncertainEffects, UncertainOldest, UncertainOverdue,
	SnapshotAge, SnapshotLag, DeadRows, PartitionsAhead}

// Attributes that metrics alone have.
const (
	Kind      = attribute.Key("pawl.kind")
	Holder    = attribute.Key("pawl.snapshot.holder")
	ConnState = attribute.Key("pawl.connection.state")
)
