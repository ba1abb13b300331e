package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"unicode/utf8"
)

// Encode returns v as JSON: no HTML escaping, no newline at its end. It
// refuses what JSON would store as something else, invalid UTF-8 first of
// all. Pointer receivers of MarshalJSON are honoured, though v came by value.
func Encode(v any) ([]byte, error) {
	buf := buffers.Get().(*bytes.Buffer)
	defer func() {
		if buf.Cap() <= 64<<10 { // a large one is not kept for small values
			buffers.Put(buf)
		}
	}()
	buf.Reset()
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(addressable(v)); err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	b := bytes.Clone(bytes.TrimSuffix(buf.Bytes(), []byte("\n")))
	if err := checkUTF8(v, b); err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b, nil
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// addressable returns a pointer to a copy of v. Without it encoding/json
// passes over methods on pointers: a big.Int field would be stored as {}.
func addressable(v any) any {
	if v == nil {
		return nil
	}
	p := reflect.New(reflect.TypeOf(v))
	p.Elem().Set(reflect.ValueOf(v))
	return p.Interface()
}

// Decode reads one JSON value and nothing behind it. A number inside an any
// becomes a json.Number, so that no digit of it is lost. Fields that T does
// not have are ignored.
func Decode[T any](b []byte) (T, error) { return decodeAs[T](b, false) }

// DecodeStrict is Decode of what a person wrote: it refuses fields that T does
// not have, and null where that is no value of T.
func DecodeStrict[T any](b []byte) (T, error) { return decodeAs[T](b, true) }

func decodeAs[T any](b []byte, strict bool) (T, error) {
	var v T
	if err := decode(b, &v, strict); err != nil {
		var zero T
		return zero, fmt.Errorf("decode %s: %w", reflect.TypeFor[T](), err)
	}
	return v, nil
}

// anys remembers of a type whether a value of it may hold an any, where a
// number has to become a json.Number.
var anys sync.Map

func holdsAny(t reflect.Type) bool {
	if known, ok := anys.Load(t); ok {
		return known.(bool)
	}
	holds := findAny(t, map[reflect.Type]bool{})
	anys.Store(t, holds)
	return holds
}

func findAny(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return findAny(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if findAny(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}

func decode(b []byte, v any, strict bool) error {
	if !utf8.Valid(b) {
		return errors.New("not valid UTF-8")
	}
	if !strict && !holdsAny(reflect.TypeOf(v).Elem()) && json.Unmarshal(b, v) == nil {
		return nil // the short way; an error is told the long way
	}
	reflect.ValueOf(v).Elem().SetZero()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if strict {
		dec.DisallowUnknownFields()
		switch reflect.TypeOf(v).Elem().Kind() {
		case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
		default:
			if string(bytes.TrimSpace(b)) == "null" {
				return errors.New("null is no value of it")
			}
		}
	}
	switch err := dec.Decode(v); {
	case errors.Is(err, io.EOF):
		return errors.New("no JSON at all")
	case errors.Is(err, io.ErrUnexpectedEOF): // must not look like a broken connection
		return errors.New("the JSON ends too early")
	case err != nil:
		return err
	}
	if rest := bytes.TrimLeft(b[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return fmt.Errorf("%d bytes follow the JSON value", len(rest))
	}
	return nil
}
