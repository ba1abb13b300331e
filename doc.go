// Package pawl is durable workflows in Go on PostgreSQL: a business process
// that has moved forward never slips back, whatever crashes.
//
// This package has no code. Read on in
//
//   - steps: what you write. A contract that callers import, steps that are plain
//     functions, a flow drawn once from typed references.
//   - engine: what runs it. Start a run, wait for it, work, and act on what is
//     uncertain or dead.
//   - examples/order and examples/import: whole programs.
//   - cmd/pawl: the operator's command, and a demonstration.
package pawl

//go:generate go run ./internal/gen generate
