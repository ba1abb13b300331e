// Package telemetry holds every name that spans and log lines of Pawl carry, in
// one place. docs/telemetry.md tells what they mean; a test compares the two.
package telemetry

import "go.opentelemetry.io/otel/attribute"

// Scope is the instrumentation scope of all that Pawl tells.
const Scope = "github.com/pawlworks/pawl"

// Attributes of spans: OpenTelemetry's own where there are any.
const (
	MessagingSystem        = attribute.Key("messaging.system")
	MessagingOperation     = attribute.Key("messaging.operation.name")
	MessagingOperationType = attribute.Key("messaging.operation.type")
	MessagingDestination   = attribute.Key("messaging.destination.name")
	MessagingConversation  = attribute.Key("messaging.message.conversation_id")
	MessagingBatch         = attribute.Key("messaging.batch.message_count")
	ErrorType              = attribute.Key("error.type")
	ExceptionMessage       = attribute.Key("exception.message")

	RunID       = attribute.Key("pawl.run_id")
	Workflow    = attribute.Key("pawl.workflow")
	Step        = attribute.Key("pawl.step")
	Place       = attribute.Key("pawl.place")
	Attempt     = attribute.Key("pawl.attempt")
	Token       = attribute.Key("pawl.token")
	Queue       = attribute.Key("pawl.queue")
	Mode        = attribute.Key("pawl.mode")
	Worker      = attribute.Key("pawl.worker")
	TimeInQueue = attribute.Key("pawl.time_in_queue")
	HandedOver  = attribute.Key("pawl.handed_over")
	EffectKey   = attribute.Key("pawl.effect.key")
	Outcome     = attribute.Key("pawl.outcome")
	State       = attribute.Key("pawl.state")
	ErrorClass  = attribute.Key("pawl.error.class")
	RetryIn     = attribute.Key("pawl.retry_in")
	RunOutcome  = attribute.Key("pawl.run.outcome")
	Existed     = attribute.Key("pawl.existed")
)

// System is the value of MessagingSystem.
const System = "pawl"

// Events of spans.
const (
	EventEffectBegun = "effect begun"
	EventCursor      = "cursor saved"
	EventException   = "exception"
)

// Keys of log lines.
const (
	LogRunID    = "run_id"
	LogWorkflow = "workflow"
	LogStep     = "step"
	LogPlace    = "place"
	LogAttempt  = "attempt"
	LogToken    = "token"
	LogQueue    = "queue"
	LogWorker   = "worker"
	LogTraceID  = "trace_id"
	LogOutcome  = "outcome"
	LogState    = "state"
	LogClass    = "class"
	LogCode     = "code"
	LogReason   = "reason"
	LogNext     = "next"
	LogOwner    = "owner"
)
