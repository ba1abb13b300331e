package steps

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// field is a field of a struct's JSON.
type field struct {
	name   string
	typ    reflect.Type
	quoted bool // the string option
	depth  int
	tagged bool
}

// fields returns the fields that encoding/json sees in t, sorted by name, and
// the names of embedded pointers that it could write but not read.
func fields(t reflect.Type) (seen []field, unreadable []string) {
	var all []field
	visited := map[reflect.Type]bool{}
	for level, depth := []reflect.Type{t}, 0; len(level) > 0; depth++ {
		var next []reflect.Type
		for _, t := range level {
			if visited[t] {
				continue
			}
			for sf := range structFields(t) {
				tag, opts, _ := strings.Cut(sf.Tag.Get("json"), ",")
				inner := sf.Type
				if inner.Kind() == reflect.Pointer && inner.Name() == "" {
					inner = inner.Elem()
				}
				if sf.Anonymous && tag == "" && inner.Kind() == reflect.Struct {
					if !sf.IsExported() && sf.Type.Kind() == reflect.Pointer {
						unreadable = append(unreadable, sf.Name)
					}
					next = append(next, inner)
					continue
				}
				f := field{name: tag, typ: sf.Type, depth: depth, tagged: tag != "", quoted: strings.Contains(","+opts+",", ",string,")}
				if tag == "" {
					f.name = sf.Name
				}
				all = append(all, f)
			}
		}
		for _, t := range level {
			visited[t] = true
		}
		level = next
	}
	return dominant(all), unreadable
}

// structFields iterates over the fields that may be part of the JSON.
func structFields(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			sf := t.Field(i)
			inner := sf.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			hidden := !sf.IsExported() && !(sf.Anonymous && inner.Kind() == reflect.Struct)
			if hidden || sf.Tag.Get("json") == "-" {
				continue
			}
			if !yield(sf) {
				return
			}
		}
	}
}

// dominant keeps of the fields of one name what Go's rules keep: the
// shallowest, then the tagged, and none if there are still two.
func dominant(all []field) (kept []field) {
	byName := map[string][]field{}
	for _, f := range all {
		byName[f.name] = append(byName[f.name], f)
	}
	for _, same := range byName {
		slices.SortStableFunc(same, func(a, b field) int {
			switch {
			case a.depth != b.depth:
				return a.depth - b.depth
			case a.tagged != b.tagged && a.tagged:
				return -1
			case a.tagged != b.tagged:
				return 1
			}
			return 0
		})
		if len(same) == 1 || same[0].depth != same[1].depth || same[0].tagged != same[1].tagged {
			kept = append(kept, same[0])
		}
	}
	slices.SortFunc(kept, func(a, b field) int { return strings.Compare(a.name, b.name) })
	return kept
}

// marshals tells whether values of t, which is no pointer, write themselves.
func marshals(t reflect.Type) bool {
	return has[json.Marshaler](t) || has[encoding.TextMarshaler](t)
}

// has tells whether t or a pointer to it implements M.
func has[M any](t reflect.Type) bool {
	m := reflect.TypeFor[M]()
	return t.Implements(m) || reflect.PointerTo(t).Implements(m)
}
