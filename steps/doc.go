// Package steps is what a user of Pawl writes: contracts, steps and flows.
//
// # Contract
//
// [Declare] makes a [Workflow]: a name, an input type, an output type. It
// links no step's code, so whoever starts runs imports nothing else.
//
// # Steps
//
// A [Step] is a plain function or method with a name and options: [New] for
// work anywhere, [NewTx] for writes to the engine's own database, which commit
// together with the step, [NewLong] for work that saves its position in a
// [Cursor]. A body runs at least once; its completion is recorded once.
//
// A step that does something elsewhere says how to find out what became of it:
// [Idempotent], [Step.LookUp] or [Manual]. The target gets [IdempotencyKey].
//
// # Flow
//
// [Workflow.Define] draws the graph from references: [Step.Do] puts a step
// next in the sequence and returns a [Ref] to its output, [Map] fits values
// to inputs. A Ref has no value in it, so there is no code that is replayed and
// no rule of determinism, but that Map functions are pure. [Workflow.Of] is the
// workflow of one step.
//
// A [Definition] that is wrong in any way says so in [Definition.Err], with
// all problems at once; nothing here panics.
//
// # Errors
//
// A body returns an ordinary error, or one with a class: [Permanent],
// [Transient], [Uncertain], [RetryAfter], [Snooze]. What has none goes to the
// step's [Classifier], then to the defaults of [Classify].
//
// # Values
//
// Inputs, outputs and positions are stored as JSON and decoded from there each
// time, so a run that crashed sees what one that did not has seen: only what
// JSON keeps arrives. Types that JSON can't hold are refused when a workflow is
// defined, text that is not UTF-8 when it is stored. A number inside an any
// arrives as a json.Number, with all its digits.
package steps
