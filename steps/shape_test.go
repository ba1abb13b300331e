package steps_test

import (
	"context"
	"encoding/json"
	"math/big"
	"testing"
	"time"

	"github.com/pawlworks/pawl/steps"
)

type (
	money struct {
		Cents    int64
		Currency string `json:"cur,omitempty"`
	}
	moneyToo struct { // another name and order, the same JSON
		Currency string `json:"cur"`
		Cents    int
		private  int
		Skip     bool `json:"-"`
	}
	base  struct{ ID, Name string }
	cover struct {
		base
		Name int // shadows base's
	}
	left  struct{ X, Y int }
	right struct{ X, Y int }
	clash struct { // both X are gone; the tagged Y wins
		left
		right
		Y string `json:"Y"`
	}
	tagged struct {
		Z bool `json:"X"`
	}
	half struct { // the tagged X wins
		left
		tagged
	}
	double struct {
		A, B money
		Next *double
	}
	kinds struct {
		Any  any
		B    []byte
		Arr  [2]uint8
		Big  *big.Int
		F    float32
		M    map[string][]bool
		N    json.Number
		Q    int `json:",string"`
		Raw  json.RawMessage
		Odd  int `json:"a:b"`
		Time time.Time
	}
	long1 struct {
		Aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa int
		Bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb int
		Z                                                                                                                            int
	}
	long2 struct {
		Aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa int
		Bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb int
		Z                                                                                                                            string
	}
)

func shapeOf[T any](t *testing.T) string {
	t.Helper()
	w := steps.Declare[T, string]("w")
	p := compile(t, w.Of(steps.New("a", func(context.Context, T) (string, error) { return "", nil })))
	if p.In != p.Nodes[0].Step.In || p.Out != "string" {
		t.Errorf("workflow %s -> %s, step %s", p.In, p.Out, p.Nodes[0].Step.In)
	}
	return p.In
}

func TestShapes(t *testing.T) {
	t.Parallel()
	_ = moneyToo{}.private
	for _, c := range []struct{ got, want string }{
		{shapeOf[money](t), "{Cents:int,cur:string}"},
		{shapeOf[moneyToo](t), "{Cents:int,cur:string}"},
		{shapeOf[*money](t), "?{Cents:int,cur:string}"},
		{shapeOf[struct{}](t), "{}"},
		{shapeOf[cover](t), "{ID:string,Name:int}"},
		{shapeOf[clash](t), "{Y:string}"},
		{shapeOf[half](t), "{X:bool,Y:int}"},
		{shapeOf[double](t), "{A:{Cents:int,cur:string},B:@1,Next:?@0}"},
		{shapeOf[list](t), "[]^"},
		{shapeOf[node](t), "{Next:?@0}"},
		{shapeOf[kinds](t), `{Any:any,Arr:[2]uint,B:bytes,Big:?big.Int,F:float,M:map[string][]bool,N:number,Q:'int,Raw:json,Time:time.Time,"a:b":int}`},
	} {
		if c.got != c.want {
			t.Errorf("got  %s\nwant %s", c.got, c.want)
		}
	}
	one, two := shapeOf[long1](t), shapeOf[long2](t)
	if one == two || len(one) != 240 || len(two) != 240 || one != shapeOf[long1](t) {
		t.Errorf("long shapes:\n%s\n%s", one, two)
	}
}
