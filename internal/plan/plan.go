// Package plan is what a definition compiles to: the graph by numbers and the
// steps without their types. Package steps makes it, package engine runs it;
// nobody else sees it. All values cross it as bytes or as any: generics stay
// at the typed edge.
package plan

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Input is the node number that stands for the run's input in an Expr.
const Input = -1

// Kind says how a step's body is called.
type Kind string

// The kinds of step.
const (
	Plain Kind = "plain" // func(ctx, in) (out, error)
	Tx    Kind = "tx"    // func(ctx, tx, in) (out, error): committed with the fence
	Long  Kind = "long"  // func(ctx, in, cursor) (out, error)
)

// Effect says how the outcome of a step's effect on the outside is established.
type Effect string

// The effects.
const (
	NoEffect   Effect = ""           // none declared: at least once
	Idempotent Effect = "idempotent" // the target honours the key for TTL
	LookUp     Effect = "lookup"     // the target can be asked
	Manual     Effect = "manual"     // a person decides
)

// Definition is a workflow's graph of steps.
type Definition struct {
	Workflow string
	In, Out  string // type shapes of input and output
	Nodes    []Node // in order of the sequence; the index is the node's number
	Result   Expr
}

// Node is a place in the graph.
type Node struct {
	Step  *Step
	Input Expr
}

// Retry is a budget and its backoff. Delays have full jitter: the k-th is
// uniform between zero and the smaller of Delay*2^(k-1) and MaxDelay.
type Retry struct {
	Attempts int           // failures of the class until the job is dead
	Within   time.Duration // since the first failure; zero: no limit
	Delay    time.Duration
	MaxDelay time.Duration
}

// The defaults of a step's settings.
const (
	DefaultLease      = time.Minute
	DefaultMaxRuntime = 15 * time.Minute
)

// The default budgets: of transient errors, of unknown ones, of questions.
var (
	DefaultTransient = Retry{Attempts: 25, Within: 24 * time.Hour, Delay: time.Second, MaxDelay: 10 * time.Minute}
	DefaultUnknown   = Retry{Attempts: 5, Within: 24 * time.Hour, Delay: time.Second, MaxDelay: time.Minute}
	DefaultQuestions = Retry{Attempts: 100, Within: 24 * time.Hour, Delay: time.Second, MaxDelay: 10 * time.Minute}
)

// Step is a step with its effective settings: every default is filled in.
type Step struct {
	Name     string
	Formerly []string
	Kind     Kind
	Queue    string // "default" unless set
	Owner    string // who must look when it is dead; may be empty
	In, Out  string // type shapes

	Lease      time.Duration
	Heartbeat  time.Duration
	MaxRuntime time.Duration

	Transient Retry
	Unknown   Retry

	Effect      Effect
	TTL         time.Duration // Idempotent: how long the target remembers a key
	LateArrival time.Duration // LookUp: how long "never happened" does not count
	Questions   Retry         // LookUp: budget and backoff of the questions

	// Given names those of these settings that somebody chose, as Settings
	// names them; the others are defaults.
	Given []string

	// Classify gives a class to an error that has none, or returns it as it
	// is. Nil: only the defaults.
	Classify func(error) error

	// Body runs one attempt. tx is nil but for Tx, cur but for Long.
	Body func(ctx context.Context, in any, tx pgx.Tx, cur Cursor) (any, error)
	// Ask asks the outside world what became of the effect. Nil but for LookUp.
	Ask func(ctx context.Context, in any) (Verdict, error)

	// DecodeIn and DecodeOut read what a person gave in a value's place: fields
	// that the type does not have are refused, and null where it has none.
	DecodeIn  func([]byte) (any, error)
	DecodeOut func([]byte) (any, error)
}

// Outcome is what a reconciler found.
type Outcome int

// The outcomes.
const (
	StillUnknown Outcome = iota
	Happened
	NeverHappened
)

// Verdict is a reconciler's answer.
type Verdict struct {
	Outcome Outcome
	Output  any           // Happened
	Again   time.Duration // StillUnknown: when to ask again; zero: by backoff
}

// Values gives the encoded value of a node's output, or the run's input.
type Values func(node int) ([]byte, error)

// Expr makes a value from the run's input and from outputs of earlier nodes.
type Expr struct {
	Deps []int // the nodes (and Input) it reads, ascending, each once
	Eval func(Values) (any, error)
}

// Cursor is the engine's side of a long step's cursor. Values are encoded.
type Cursor interface {
	At() []byte // nil at first
	Commit(ctx context.Context, v []byte) error
	CommitTx(ctx context.Context, v []byte, fn func(pgx.Tx) error) error
	Progress(done, total int64)
}

// Attempt is what the context of a step's body carries.
type Attempt struct {
	Key         func() string               // the effect's idempotency key
	Number      int                         // of the attempt, from 1
	Acknowledge func(context.Context) error // progress without a cursor
	Late        func() ([]byte, bool)       // the newest late result kept as evidence; nil outside a question
}

type attemptKey struct{}

// WithAttempt puts a into the context.
func WithAttempt(ctx context.Context, a *Attempt) context.Context {
	return context.WithValue(ctx, attemptKey{}, a)
}

// FromContext returns the attempt that ctx belongs to, or nil.
func FromContext(ctx context.Context) *Attempt {
	a, _ := ctx.Value(attemptKey{}).(*Attempt)
	return a
}
