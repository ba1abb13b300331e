// Package fault names the points at which a worker process can be made to
// die, for tests that crash it at every boundary. Nothing happens at them
// unless a test's process has set At.
package fault

// At is called with the label of every point passed. Set it before any work
// starts; nil means nothing.
var At func(label string)

// The labels, in the order in which an effect step passes them.
const (
	BeforeClaim  = "before-claim"
	AfterClaim   = "after-claim"
	BeforeBegin  = "before-begin"
	AfterBegin   = "after-begin"
	BeforeBody   = "before-body"
	AfterBody    = "after-body"
	BeforeCommit = "before-commit"
	AfterCommit  = "after-commit"
)

// Labels is all of them.
var Labels = []string{BeforeClaim, AfterClaim, BeforeBegin, AfterBegin, BeforeBody, AfterBody, BeforeCommit, AfterCommit}

// Point passes a point.
func Point(label string) {
	if At != nil {
		At(label)
	}
}
