package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/pawlworks/pawl/internal/view"
)

// TestFieldsAreTold: every field that programs are given has its name in the docs.
func TestFieldsAreTold(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/command.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[reflect.Type]bool{}
	var look func(reflect.Type)
	look = func(v reflect.Type) {
		switch v.Kind() {
		case reflect.Slice, reflect.Pointer:
			look(v.Elem())
		case reflect.Struct:
			if seen[v] || !strings.Contains(v.PkgPath(), "pawl") {
				return
			}
			seen[v] = true
			for f := range v.NumField() {
				f := v.Field(f)
				if !f.IsExported() {
					continue
				}
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if name == "" && !f.Anonymous {
					t.Errorf("%v.%s has no name", v, f.Name)
				}
				if name != "" && !strings.Contains(string(text), "`"+name+"`") {
					t.Errorf("docs/command.md does not tell of %q of %v", name, v)
				}
				look(f.Type)
			}
		}
	}
	for _, v := range []any{view.Status{}, view.Item{}, view.Run{}, view.Setting{}, view.Event{}} {
		look(reflect.TypeOf(v))
	}
	if len(seen) < 15 {
		t.Errorf("only %d kinds of object", len(seen))
	}
}
