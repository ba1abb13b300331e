package steps

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

const maxShape = 240 // bytes

// shape describes the JSON of a type: stable, whatever the order of its
// fields and the names of its types. Long ones end in a hash of the whole.
func shape(t reflect.Type) string {
	s := shaper{structs: map[reflect.Type]int{}, open: map[reflect.Type]bool{}}
	s.write(t)
	text := s.b.String()
	if len(text) <= maxShape {
		return text
	}
	return fmt.Sprintf("%s~%x", strings.ToValidUTF8(text[:maxShape-41], ""), sha256.Sum256([]byte(text)))[:maxShape]
}

// shaper writes each struct type once and then its number, which ends
// recursion and keeps the text linear in the number of types.
type shaper struct {
	b       strings.Builder
	structs map[reflect.Type]int
	open    map[reflect.Type]bool // composite types that are being written
}

func (s *shaper) write(t reflect.Type) {
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		s.b.WriteString("json")
		return
	case t == reflect.TypeFor[json.Number]():
		s.b.WriteString("number")
		return
	case t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface && marshals(t):
		s.b.WriteString(t.String()) // only it knows
		return
	case s.open[t]: // type T []T
		s.b.WriteString("^")
		return
	}
	if t.Name() != "" && t.Kind() != reflect.Struct {
		s.open[t] = true
		defer delete(s.open, t)
	}
	switch t.Kind() {
	case reflect.Bool:
		s.b.WriteString("bool")
	case reflect.String:
		s.b.WriteString("string")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		s.b.WriteString("int")
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		s.b.WriteString("uint")
	case reflect.Float32, reflect.Float64:
		s.b.WriteString("float")
	case reflect.Interface:
		s.b.WriteString("any")
	case reflect.Pointer:
		s.b.WriteString("?")
		s.write(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 && !marshals(t.Elem()) {
			s.b.WriteString("bytes")
			return
		}
		s.b.WriteString("[]")
		s.write(t.Elem())
	case reflect.Array:
		fmt.Fprintf(&s.b, "[%d]", t.Len())
		s.write(t.Elem())
	case reflect.Map:
		s.b.WriteString("map[")
		s.write(t.Key())
		s.b.WriteString("]")
		s.write(t.Elem())
	case reflect.Struct:
		s.writeStruct(t)
	default:
		s.b.WriteString("!" + t.Kind().String())
	}
}

func (s *shaper) writeStruct(t reflect.Type) {
	if n, ok := s.structs[t]; ok {
		fmt.Fprintf(&s.b, "@%d", n)
		return
	}
	s.structs[t] = len(s.structs)
	list, _ := fields(t)
	s.b.WriteString("{")
	for i, f := range list {
		if i > 0 {
			s.b.WriteString(",")
		}
		if strings.ContainsAny(f.name, `{}:,"`) {
			s.b.WriteString(strconv.Quote(f.name))
		} else {
			s.b.WriteString(f.name)
		}
		s.b.WriteString(":")
		if f.quoted {
			s.b.WriteString("'")
		}
		s.write(f.typ)
	}
	s.b.WriteString("}")
}
