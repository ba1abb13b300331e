package csvimport

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// fields parts a record that the scanner found whole. Text that PostgreSQL
// can't store is refused here, where only its own record is affected.
func (rec record) fields(sep byte) ([]string, string) {
	switch {
	case rec.bad != "":
		return nil, rec.bad
	case bytes.IndexByte(rec.raw, 0) >= 0:
		return nil, "a NUL byte"
	case !utf8.Valid(rec.raw):
		return nil, "not valid UTF-8"
	}
	var all []string
	for text, more := string(rec.raw), true; more; {
		var field string
		field, text, more = cutField(text, sep)
		all = append(all, field)
	}
	return all, ""
}

// cutField takes the first field off; more tells whether another follows.
func cutField(text string, sep byte) (field, rest string, more bool) {
	if !strings.HasPrefix(text, `"`) {
		return strings.Cut(text, string(sep))
	}
	end := 1
	for {
		end += strings.IndexByte(text[end:], '"') // the scanner saw it closed
		if end+1 == len(text) || text[end+1] != '"' {
			break
		}
		end += 2
	}
	field = strings.ReplaceAll(text[1:end], `""`, `"`)
	if end+1 == len(text) {
		return field, "", false
	}
	return field, text[end+2:], true // behind the separator
}

// values is fields that fit a table of so many columns.
func (rec record) values(sep byte, columns int) ([]string, string) {
	all, bad := rec.fields(sep)
	if bad == "" && len(all) != columns {
		return nil, fmt.Sprintf("fields: %d, not %d", len(all), columns)
	}
	return all, bad
}
