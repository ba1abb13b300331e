package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawlworks/pawl/internal/db"
	"github.com/pawlworks/pawl/internal/plan"
	"github.com/pawlworks/pawl/schema"
	"github.com/pawlworks/pawl/steps"
)

// Config says what a process knows and how it works. The zero value starts,
// finds and waits for runs, of any workflow whose contract the caller has.
type Config struct {
	// Workflows are the definitions whose steps this process can run. New
	// stores their graphs: runs started from then on, by any process, get them.
	Workflows []steps.Definition
	// Name is for people: pages, logs. It says nothing about ownership and may
	// be shared. Default: the host's name.
	Name string
	// Queues that Work serves. Default: all.
	Queues []string
	// Slots is how many steps Work runs at once, 1 to 100,000. Default: 100.
	Slots int
	// Session is how long a killed process's jobs stay away at most before
	// others take them back; renewed every third of it, or two thirds while the
	// process holds none. Default: 15 s. At least 500 ms.
	Session time.Duration
	// Drain is how long Work waits for its steps when its context has ended,
	// before it hands back what it can. Keep it below the time that your
	// platform gives a process to stop. Default: 25 s.
	Drain time.Duration
	// MaxPayload is the largest input, output or cursor in bytes, at most 256 MiB.
	// Default: 1 MiB.
	MaxPayload int
	// ListenDSN is a direct connection for LISTEN, where the pool goes through
	// a transaction pooler. Default: a connection of the pool.
	ListenDSN string
	// NoListen turns wake-ups off: polling alone finds all work, within a third of Session.
	NoListen bool
	// Logger gets what a person should know, with the keys of docs/telemetry.md:
	// a line for each failure at warn, for what needs a person at error, for each
	// transition at debug; never a payload. Default: slog.Default().
	Logger *slog.Logger
	// TracerProvider makes the spans: one trace a run. Default: the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the instruments of docs/metrics.md. While Work is under
	// way a scrape reads the database, once in five seconds and for two at most; what
	// could not be read is left out. Default: the global one, also if it is set later.
	MeterProvider metric.MeterProvider
	// Redact takes out of an error's text what must be seen nowhere: it is called
	// before the text is stored, logged or traced, from any goroutine. If it
	// panics the text is left out. Default: texts stay as they are. Payloads are
	// never logged or traced.
	Redact func(text string) string
}

func (c Config) validate() (Config, error) {
	if c.Name == "" {
		c.Name, _ = os.Hostname()
	}
	if c.Slots == 0 {
		c.Slots = 100
	}
	if c.Session == 0 {
		c.Session = 15 * time.Second
	}
	if c.Drain == 0 {
		c.Drain = 25 * time.Second
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = 1 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Name = clean(c.Name, 200)
	var errs []error
	if c.Slots < 0 || c.Slots > 100_000 {
		errs = append(errs, fmt.Errorf("pawl: Config.Slots is %d, not from 1 to 100,000", c.Slots))
	}
	if c.Session < 500*time.Millisecond {
		errs = append(errs, fmt.Errorf("pawl: Config.Session is %v, less than 500ms", c.Session))
	}
	if c.Drain < 0 {
		errs = append(errs, fmt.Errorf("pawl: Config.Drain is %v, less than nothing", c.Drain))
	}
	if c.MaxPayload < 1 || c.MaxPayload > 256<<20 {
		errs = append(errs, fmt.Errorf("pawl: Config.MaxPayload is %d bytes, not from 1 to 256 MiB", c.MaxPayload))
	}
	seen := map[string]bool{}
	for _, d := range c.Workflows {
		if err := d.Err(); err != nil {
			errs = append(errs, err)
		} else if seen[d.Workflow()] {
			errs = append(errs, fmt.Errorf("pawl: workflow %q is defined twice in Config.Workflows", d.Workflow()))
		}
		seen[d.Workflow()] = true
	}
	return c, errors.Join(errs...)
}

// Engine starts runs, waits for them and works on them. It is safe for
// concurrent use. It holds no connection and no goroutine unless Work or Wait is
// under way, or has ended just now, so there is nothing to close.
type Engine struct {
	config  Config
	pool    *pgxpool.Pool
	db      *db.Queries
	vital   *db.Queries // for sessions and leases
	log     *slog.Logger
	tracer  trace.Tracer
	metrics *metrics
	shards  []int16
	code    map[string]*plan.Definition // by workflow
	own     map[int64]*plan.Definition  // by the id of the stored definition

	share    *share
	listener *listener
	notifier *notifier
	waiters  *waiters
	health   health
	clock    clock
}

// New checks the configuration and the schema, and stores the graphs of the
// workflows given. It does not migrate and starts no work. The errors of all
// definitions are joined; those about the schema wrap ErrSchema.
func New(ctx context.Context, pool *pgxpool.Pool, c Config) (*Engine, error) {
	if pool == nil {
		return nil, errors.New("pawl: New needs a pool")
	}
	c, err := c.validate()
	if err != nil {
		return nil, err
	}
	if err := schema.Check(ctx, pool); err != nil {
		return nil, err
	}
	e := &Engine{config: c, pool: pool, db: queries(pool), log: c.Logger, code: map[string]*plan.Definition{}, own: map[int64]*plan.Definition{}}
	e.tracer, e.metrics = tracerOf(c.TracerProvider), newMetrics(c.MeterProvider)
	e.share = shareOf(pool)
	e.vital = db.New(conn{pool: pool, lane: e.share})
	e.listener = e.share.listener(c.ListenDSN)
	if c.NoListen {
		e.listener = &listener{silent: true, subs: map[int]func(string){}}
	}
	e.notifier = &notifier{e: e}
	e.waiters = &waiters{e: e}
	n, err := e.db.Shards(ctx)
	if err != nil {
		return nil, fmt.Errorf("pawl: reading the number of shards: %w", err)
	}
	for s := range n {
		e.shards = append(e.shards, s)
	}
	for _, d := range c.Workflows {
		if err := e.register(ctx, d.Plan()); err != nil {
			return nil, fmt.Errorf("pawl: storing the definition of %q: %w", d.Workflow(), err)
		}
	}
	return e, nil
}

// register stores a definition's graph and the routes of its queues.
func (e *Engine) register(ctx context.Context, d *plan.Definition) error {
	text, hash, err := graphOf(d).encode()
	if err != nil {
		return err
	}
	id, err := e.db.Register(ctx, db.RegisterParams{Workflow: d.Workflow, Hash: hash, Graph: text, Queue: d.Nodes[0].Step.Queue})
	if err != nil {
		return err
	}
	if err := e.db.MakeRoutes(ctx, db.MakeRoutesParams{Definition: id, Queues: queuesOf(d)}); err != nil {
		return err
	}
	settings, err := json.Marshal(plan.SettingsOf(d))
	if err != nil {
		return err
	}
	// Only now may runs be started by it: their first job needs its route.
	if err := e.db.Activate(ctx, db.ActivateParams{ID: id, Queue: d.Nodes[0].Step.Queue, Settings: settings}); err != nil {
		return err
	}
	e.code[d.Workflow], e.own[id] = d, d
	return nil
}

func queuesOf(d *plan.Definition) []string {
	var qs []string
	for _, n := range d.Nodes {
		if !slices.Contains(qs, n.Step.Queue) {
			qs = append(qs, n.Step.Queue)
		}
	}
	slices.Sort(qs)
	return qs
}

// Migrate brings the schema to this release's version: safe at every start,
// by any number of processes at once. The pool must lead to the server
// directly or through a session pooler.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if pool == nil {
		return errors.New("pawl: Migrate needs a pool")
	}
	c, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("pawl: migrate: %w", err)
	}
	defer c.Release()
	return schema.Migrate(ctx, c.Conn())
}
