package steps

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"

	"github.com/pawlworks/pawl/internal/plan"
)

// Flow is what a draw function draws on. It is good for one call of Define
// and only until the draw function returns.
type Flow struct {
	workflow string
	defaults *settings

	mu       sync.Mutex // a draw function may be wrong in any way it likes
	closed   bool
	nodes    []plan.Node
	mishaps  []*mishap
	problems []error
	plan     *plan.Definition
}

func newFlow(workflow string, err error, opts []Option) *Flow {
	f := &Flow{workflow: workflow, defaults: gather(opts)}
	if err != nil {
		f.problems = append(f.problems, err) // it names the workflow already
	}
	for _, p := range append(f.defaults.problems, f.defaults.onlyDefaults()...) {
		f.report("", fmt.Errorf("options of Define: %w", p))
	}
	return f
}

// draw calls fn and tells whether it returned; a panic becomes a problem.
func (f *Flow) draw(fn func()) (ok bool) {
	defer func() {
		if v := recover(); v != nil {
			f.report("", fmt.Errorf("the draw function panicked%s: %v", panicSite(), v))
			ok = false
		}
	}()
	fn()
	return true
}

// panicSite returns where the recovered panic began, as " at file:line".
func panicSite() string {
	pc := make([]uintptr, 16)
	frames := runtime.CallersFrames(pc[:runtime.Callers(3, pc)])
	for more := true; more; {
		var fr runtime.Frame
		if fr, more = frames.Next(); !strings.HasPrefix(fr.Function, "runtime.") {
			return fmt.Sprintf(" at %s:%d", fr.File, fr.Line)
		}
	}
	return ""
}

// place puts a step into the sequence and returns its node's number.
func (f *Flow) place(d draft, in source, input plan.Expr) (int, bool) {
	if p := f.refuses(in); p != "" {
		f.report(d.name, errors.New(p))
	}
	step, problems := d.settle(f.defaults)
	for _, p := range problems {
		f.report(d.name, p)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, false
	}
	f.nodes = append(f.nodes, plan.Node{Step: step, Input: input})
	return len(f.nodes) - 1, true
}

// report keeps a problem, once.
func (f *Flow) report(step string, problem error) {
	where := fmt.Sprintf("workflow %q", f.workflow)
	if step != "" {
		where += fmt.Sprintf(": step %q", step)
	}
	err := fmt.Errorf("%s: %w", where, problem)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, old := range f.problems {
		if old.Error() == err.Error() {
			return
		}
	}
	f.problems = append(f.problems, err)
}

func (f *Flow) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.problems...)
}

// close ends the time in which the flow may be drawn on.
func (f *Flow) close(problem string) {
	if problem != "" {
		f.report("", errors.New(problem))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// finish closes the flow and compiles it.
func (f *Flow) finish(in, out reflect.Type, result source, eval func(plan.Values) (any, error)) {
	if p := f.refuses(result); p != "" {
		f.report("", fmt.Errorf("the result: %s", p))
	}
	f.close("")
	for _, text := range f.untold() {
		f.report("", errors.New(text))
	}
	if len(f.nodes) == 0 {
		f.report("", errors.New("no steps"))
	}
	f.checkNames()
	f.plan = &plan.Definition{
		Workflow: f.workflow,
		In:       shape(in),
		Out:      shape(out),
		Nodes:    f.nodes,
		Result:   plan.Expr{Deps: result.deps, Eval: eval},
	}
}

// untold returns the mishaps of Refs that nobody used.
func (f *Flow) untold() (texts []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.mishaps {
		if !m.told {
			texts = append(texts, m.text)
		}
	}
	return texts
}

// checkNames refuses names, former ones included, that could mean two steps.
func (f *Flow) checkNames() {
	now := map[string]bool{}
	for _, n := range f.nodes {
		if name := n.Step.Name; now[name] {
			f.report(name, errors.New("the name is there twice; a step placed twice needs two names"))
		} else {
			now[name] = true
		}
	}
	former := map[string]string{}
	for _, n := range f.nodes {
		for _, old := range n.Step.Formerly {
			other, taken := former[old]
			switch {
			case old == n.Step.Name:
				f.report(n.Step.Name, errors.New("Formerly: that is its name now"))
			case now[old]:
				f.report(n.Step.Name, fmt.Errorf("Formerly(%q): another step has that name", old))
			case taken && other != n.Step.Name:
				f.report(n.Step.Name, fmt.Errorf("Formerly(%q): step %q was that one already", old, other))
			}
			former[old] = n.Step.Name
		}
	}
}
