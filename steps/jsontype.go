package steps

import (
	"encoding"
	"fmt"
	"reflect"
)

// checkType refuses types whose values can't be stored and read back.
func checkType(t reflect.Type) error {
	return typeCheck{}.check(t, t.String())
}

// typeCheck is the types that were looked at.
type typeCheck map[reflect.Type]bool

func (c typeCheck) check(t reflect.Type, path string) error {
	if c[t] {
		return nil
	}
	c[t] = true
	if t.Kind() != reflect.Interface && t.Kind() != reflect.Pointer && marshals(t) {
		return nil
	}
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		if path == t.String() {
			return fmt.Errorf("JSON can't hold %s", t)
		}
		return fmt.Errorf("%s is %s, which JSON can't hold", path, t)
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Errorf("%s is %s: what JSON holds of it can't be read back", path, t)
		}
	case reflect.Pointer:
		return c.check(t.Elem(), path)
	case reflect.Slice, reflect.Array:
		return c.check(t.Elem(), path+"[]")
	case reflect.Map:
		if !isKey(t.Key()) {
			return fmt.Errorf("%s has keys of type %s, which JSON can't hold", path, t.Key())
		}
		return c.check(t.Elem(), path+"[]")
	case reflect.Struct:
		list, unreadable := fields(t)
		if len(unreadable) > 0 {
			return fmt.Errorf("%s.%s is an embedded pointer to an unexported struct, which can't be read back", path, unreadable[0])
		}
		for _, f := range list {
			if err := c.check(f.typ, path+"."+f.name); err != nil {
				return err
			}
		}
	}
	return nil
}

// isKey tells whether encoding/json reads and writes t as a map's key.
func isKey(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return true
	}
	return t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) && has[encoding.TextUnmarshaler](t)
}
