package engine

import (
	"slices"

	"github.com/pawlworks/pawl/internal/plan"
)

// binding joins a stored graph with this process's code: the graph decides
// what comes next, the code supplies steps by name. What the code does not
// know is left to others.
type binding struct {
	id       int64 // of the stored definition
	workflow string
	graph    graph
	nodes    []bound // as many as the graph has, and one for the result
	floor    int     // from this node on, everything is known
	lastUse  []int   // of each node's output: the last node that reads it (len: the result)
}

// bound is a node with its code. A nil step at a node of the graph: unknown here.
type bound struct {
	step  *plan.Step
	input plan.Expr
	toOld map[int]int // the code's node numbers to the graph's

	spanName string // of an attempt there
}

// bind never fails: at worst nothing is known.
func bind(id int64, g graph, code *plan.Definition) *binding {
	b := &binding{id: id, graph: g, nodes: make([]bound, len(g.Steps)+1), lastUse: make([]int, len(g.Steps))}
	b.workflow = code.Workflow
	byName := map[string]int{}
	for i, n := range code.Nodes {
		for _, f := range n.Step.Formerly {
			byName[f] = i
		}
	}
	for i, n := range code.Nodes {
		byName[n.Step.Name] = i
	}
	toOld := map[int]int{plan.Input: plan.Input}
	for i, s := range g.Steps {
		if c, ok := byName[s.Name]; ok {
			toOld[c] = i
		}
	}
	known := func(deps []int, before int) bool {
		return !slices.ContainsFunc(deps, func(d int) bool { o, ok := toOld[d]; return !ok || o >= before })
	}
	for i, s := range g.Steps {
		if c, ok := byName[s.Name]; ok && known(code.Nodes[c].Input.Deps, i) {
			b.nodes[i] = bound{step: code.Nodes[c].Step, input: code.Nodes[c].Input, toOld: toOld}
			b.use(code.Nodes[c].Input.Deps, toOld, i)
		}
		b.use(s.Deps, nil, i)
	}
	b.floor = len(g.Steps) + 1
	b.use(g.Result, nil, len(g.Steps))
	if known(code.Result.Deps, len(g.Steps)) {
		b.nodes[len(g.Steps)] = bound{input: code.Result, toOld: toOld}
		b.use(code.Result.Deps, toOld, len(g.Steps))
		for b.floor = len(g.Steps); b.floor > 0 && b.nodes[b.floor-1].step != nil; {
			b.floor--
		}
	}
	for i := range b.nodes {
		b.nodes[i].spanName = "step " + g.name(i)
	}
	return b
}

func (b *binding) use(deps []int, toOld map[int]int, by int) {
	for _, d := range deps {
		if toOld != nil {
			d = toOld[d]
		}
		if d >= 0 && d < len(b.lastUse) {
			b.lastUse[d] = max(b.lastUse[d], by)
		}
	}
}

// end is the place behind the last step, where the result is made.
func (b *binding) end() int { return len(b.graph.Steps) }

// knows tells whether this process can carry a run on from the node.
func (b *binding) knows(node int) bool { return node >= b.floor && node <= b.end() }

// eval makes the input of a node, or the result, from recorded values.
func (n bound) eval(values plan.Values) (any, error) {
	return n.input.Eval(func(code int) ([]byte, error) { return values(n.toOld[code]) })
}
