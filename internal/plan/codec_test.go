package plan_test

import (
	"encoding/json"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pawlworks/pawl/internal/plan"
)

type (
	holder struct {
		S   string
		Any any             `json:",omitempty"`
		Raw json.RawMessage `json:",omitempty"`
		M   map[string]int  `json:",omitempty"`
		Sub *holder         `json:",omitempty"`
		L   []string        `json:",omitempty"`
	}
	inner   struct{ Text string }
	wrapped struct{ inner }
	money   struct{ N big.Int } // its MarshalJSON has a pointer receiver
	badText struct{}
	alias   struct{ S string }
)

func (badText) MarshalText() ([]byte, error) { return []byte("a\xff"), nil }

func (a alias) MarshalJSON() ([]byte, error) { type plain alias; return json.Marshal(plain(a)) }

func TestEncodeComesBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   any
		want string
	}{
		"NUL":               {holder{S: "a\x00b"}, `{"S":"a\u0000b"}`},
		"quotes":            {holder{S: `it's "so" \ `}, `{"S":"it's \"so\" \\ "}`},
		"four-byte rune":    {holder{S: "😀"}, `{"S":"😀"}`},
		"html":              {holder{S: "<a&b>"}, `{"S":"<a&b>"}`},
		"newline":           {holder{S: "a\n"}, `{"S":"a\n"}`},
		"real U+FFFD":       {holder{S: "\ufffd"}, "{\"S\":\"\ufffd\"}"},
		"looks like escape": {holder{S: `\ufffd`}, `{"S":"\\ufffd"}`},
		"raw":               {holder{Raw: json.RawMessage(`{"b": 1, "a": 12345678901234567890123.10}`)}, `{"S":"","Raw":{"b":1,"a":12345678901234567890123.10}}`},
		"raw with escape":   {holder{Raw: json.RawMessage(`"\ufffd"`)}, `{"S":"","Raw":"\ufffd"}`},
		"big int":           {int64(math.MaxInt64), `9223372036854775807`},
		"big uint":          {uint64(math.MaxUint64), `18446744073709551615`},
		"pointer receiver":  {money{*big.NewInt(5)}, `{"N":5}`},
		"float":             {1e21, `1e+21`},
		"nil map":           {map[string]int(nil), `null`},
		"string":            {"x", `"x"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := plan.Encode(c.in)
			if err != nil {
				t.Fatal(err)
			}
			if string(b) != c.want {
				t.Errorf("got  %s\nwant %s", b, c.want)
			}
			back := reflect.New(reflect.TypeOf(c.in))
			if err := json.Unmarshal(b, back.Interface()); err != nil {
				t.Error(err)
			}
		})
	}
	if b, err := plan.Encode(nil); err != nil || string(b) != "null" {
		t.Errorf("nil: %s, %v", b, err)
	}
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   any
		want string
	}{
		"string":           {"a\xff", "string: invalid UTF-8 in"},
		"field":            {holder{S: "\xc3"}, "plan_test.holder: .S: invalid UTF-8"},
		"after backslash":  {holder{S: "\\\xff"}, ".S: invalid"},
		"escape as well":   {holder{S: "\\ufffd\xff"}, ".S: invalid"},
		"key":              {holder{M: map[string]int{"\xff": 1}}, "[key]: invalid"},
		"value of any":     {holder{Any: map[string]any{"k": []any{1, "\xff"}}}, ".Any[k][1]: invalid"},
		"pointer":          {&holder{Sub: &holder{L: []string{"", "\xff"}}}, ".Sub.L[1]: invalid"},
		"embedded":         {wrapped{inner{"\xff"}}, ".inner.Text: invalid"},
		"text marshaler":   {holder{Any: badText{}}, "invalid UTF-8"},
		"json marshaler":   {alias{"\xff"}, "a marshaler replaced invalid UTF-8"},
		"raw bytes":        {holder{Raw: json.RawMessage("\"\xff\"")}, "invalid UTF-8"},
		"raw and a string": {holder{S: "\xff", Raw: json.RawMessage(`"\ufffd"`)}, "invalid UTF-8"},
		"raw not JSON":     {holder{Raw: json.RawMessage(`{`)}, "encode plan_test.holder"},
		"channel":          {make(chan int), "encode chan int"},
		"function":         {func() {}, "encode func()"},
		"NaN":              {math.NaN(), "encode float64"},
		"infinity":         {map[string]float64{"x": math.Inf(1)}, "encode map[string]float64"},
		"complex":          {complex(1, 1), "encode complex128"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := plan.Encode(c.in)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %s, %v; want an error with %q", b, err, c.want)
			}
		})
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	v, err := plan.Decode[map[string]any]([]byte(` {"n": 9007199254740993} `))
	if err != nil || v["n"] != json.Number("9007199254740993") {
		t.Errorf("got %v, %v: digits are lost", v, err)
	}
	if _, err := plan.Decode[time.Time]([]byte(`"2026-01-02T03:04:05Z"`)); err != nil {
		t.Error(err)
	}
	for in, want := range map[string]string{
		"":                 "no JSON at all",
		"  ":               "no JSON at all",
		`{"S":"a"`:         "ends too early",
		`{"S":"a"} x`:      "follow the JSON value",
		`{"S":"a"}{}`:      "follow the JSON value",
		`{"S":1}`:          "cannot unmarshal number",
		"{\"S\":\"\xff\"}": "not valid UTF-8",
	} {
		v, err := plan.Decode[holder]([]byte(in))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "plan_test.holder") {
			t.Errorf("%q: got %v, want an error with %q and the type", in, err, want)
		}
		if !reflect.DeepEqual(v, holder{}) {
			t.Errorf("%q: got %+v beside the error", in, v)
		}
	}
}

// Text comes back as it was, or is refused.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "\x00", `\ufffd`, "\\\xff", "\ufffd\xff", `\\ufffd"`, "😀<&>\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := plan.Encode(holder{S: s, Any: map[string]any{s: s}})
		if (err == nil) != utf8.ValidString(s) {
			t.Fatalf("%q: %v", s, err)
		}
		if err != nil {
			return
		}
		back, err := plan.Decode[holder](b)
		if err != nil || back.S != s || back.Any.(map[string]any)[s] != s {
			t.Fatalf("%q came back as %+v, %v", s, back, err)
		}
	})
}
