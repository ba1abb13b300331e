package plan

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"
)

// escaped is what encoding/json writes for a byte that is not UTF-8. A real
// U+FFFD it writes as it is.
var escaped = []byte(`\ufffd`)

// checkUTF8 finds text in v, encoded as b, that encoding/json has replaced.
// Only if the tell-tale escape is there does it walk v. A json.RawMessage may
// hold the escape by right; any other marshaler gets no benefit of the doubt.
func checkUTF8(v any, b []byte) error {
	if !utf8.Valid(b) {
		return errors.New("a marshaler wrote invalid UTF-8")
	}
	found := replacements(b)
	if found == 0 {
		return nil
	}
	w := walker{}
	w.walk(reflect.ValueOf(v), "")
	if w.err == nil && found > w.raw {
		w.err = errors.New("a marshaler replaced invalid UTF-8")
	}
	return w.err
}

// replacements counts the escapes in b that are not themselves escaped.
func replacements(b []byte) (n int) {
	for i := bytes.IndexByte(b, '\\'); i >= 0 && i < len(b); {
		if bytes.HasPrefix(b[i:], escaped) {
			n++
		}
		i += 2 // the backslash and what it escapes
		next := bytes.IndexByte(b[min(i, len(b)):], '\\')
		if next < 0 {
			break
		}
		i += next
	}
	return n
}

// walker looks for the first string that is not UTF-8. It need not mind
// cycles: encoding/json has refused them before.
type walker struct {
	err error
	raw int // escapes that raw messages brought along
}

func (w *walker) text(s, path string) {
	if w.err == nil && !utf8.ValidString(s) {
		w.err = fmt.Errorf("%sinvalid UTF-8 in %q", prefix(path), s[:min(len(s), 64)])
	}
}

func (w *walker) walk(v reflect.Value, path string) {
	if w.err != nil || !v.IsValid() {
		return
	}
	if v.CanInterface() {
		switch m := v.Interface().(type) {
		case json.RawMessage:
			w.raw += replacements(m)
			return
		case *json.RawMessage:
			if m != nil {
				w.raw += replacements(*m)
			}
			return
		case json.Marshaler:
			return
		case encoding.TextMarshaler:
			if v.Kind() != reflect.Pointer || !v.IsNil() {
				if t, err := m.MarshalText(); err == nil {
					w.text(string(t), path)
				}
			}
			return
		}
	}
	switch v.Kind() {
	case reflect.String:
		w.text(v.String(), path)
	case reflect.Pointer, reflect.Interface:
		w.walk(v.Elem(), path)
	case reflect.Slice, reflect.Array:
		if k := v.Type().Elem().Kind(); k >= reflect.Bool && k <= reflect.Complex128 {
			return // a megabyte of bytes is no text
		}
		for i := range v.Len() {
			w.walk(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			w.walk(it.Key(), path+"[key]")
			w.walk(it.Value(), fmt.Sprintf("%s[%v]", path, it.Key()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-" {
				w.walk(v.Field(i), path+"."+f.Name)
			}
		}
	}
}

func prefix(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}
