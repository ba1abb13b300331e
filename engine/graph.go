package engine

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/pawlworks/pawl/internal/plan"
)

// graph is a workflow's graph as it is stored: names, edges and type shapes,
// none of the code and none of the options. A run keeps the one it started with.
type graph struct {
	In     string      `json:"in"`
	Out    string      `json:"out"`
	Steps  []graphStep `json:"steps"`
	Result []int       `json:"result"` // the nodes that the result is made of
}

type graphStep struct {
	Name string `json:"name"`
	In   string `json:"in"`
	Out  string `json:"out"`
	Deps []int  `json:"deps"` // the nodes that its input is made of; -1 is the run's input
}

func graphOf(d *plan.Definition) graph {
	g := graph{In: d.In, Out: d.Out, Result: d.Result.Deps}
	for _, n := range d.Nodes {
		g.Steps = append(g.Steps, graphStep{Name: n.Step.Name, In: n.Step.In, Out: n.Step.Out, Deps: n.Input.Deps})
	}
	return g
}

// ownerOf is who must look when a step is dead or uncertain, read from the
// settings stored beside the graph; "" if nobody is named.
func ownerOf(stored, step string) string { return plan.ReadSettings([]byte(stored))[step].Owner }

// encode returns the stored form and the hash that tells graphs apart.
func (g graph) encode() (text, hash []byte, err error) {
	text, err = json.Marshal(g)
	if err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256(text)
	return text, sum[:], nil
}

func decodeGraph(text []byte) (graph, error) {
	var g graph
	if err := json.Unmarshal(text, &g); err != nil {
		return g, fmt.Errorf("pawl: a stored graph does not decode: %w", err)
	}
	return g, nil
}

// name is the step's name at a node; the place behind the last step makes the result.
func (g graph) name(node int) string {
	if node >= 0 && node < len(g.Steps) {
		return g.Steps[node].Name
	}
	return "result"
}
