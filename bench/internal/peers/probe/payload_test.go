package probe

import "testing"

func TestPayload(t *testing.T) {
	p := payload{text: []byte(`{"a": 1, "b":"x"}`)}
	for range 2 {
		for text, want := range map[string]bool{
			`{"a": 1, "b":"x"}`: true,
			`{"b":"x","a":1}`:   true,
			`{"b":"x","a":2}`:   false,
			`{"b":"x"}`:         false,
			``:                  false,
			`null`:              false,
		} {
			if got := p.same([]byte(text)); got != want {
				t.Errorf("%s: %v", text, got)
			}
		}
	}
}
