package csvimport

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName is how many bytes of a name PostgreSQL keeps.
const maxName = 63

// maxColumns is what a PostgreSQL table holds, less the line's number.
const maxColumns = 1599

// columnNames makes one name a field: what the header says, in lower case
// with underscores, or the column's number where it says nothing; told apart where two
// are equal. "line" is ours.
func columnNames(header []string) ([]string, error) {
	if len(header) > maxColumns {
		return nil, fmt.Errorf("%d columns are more than the %d that a table holds", len(header), maxColumns)
	}
	taken := map[string]bool{"line": true}
	names := make([]string, 0, len(header))
	for i, text := range header {
		base := identifier(text, maxName)
		if base == "" {
			base = "column_" + strconv.Itoa(i+1)
		}
		name := base
		for n := 2; taken[name]; n++ {
			suffix := "_" + strconv.Itoa(n)
			name = cut(base, maxName-len(suffix)) + suffix
		}
		taken[name] = true
		names = append(names, name)
	}
	return names, nil
}

// schemaName is the name of a file's schema: readable, and another one for
// another file of the same name.
func schemaName(path, digest string) string {
	base := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	name := identifier(base, 40)
	if name == "" {
		name = "file"
	}
	return "import_" + name + "_" + digest[:8]
}

// identifier keeps letters and digits, in lower case, and puts one underscore
// for anything between them.
func identifier(text string, most int) string {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return r == utf8.RuneError || !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	return strings.TrimRight(cut(strings.Join(words, "_"), most), "_")
}

// cut shortens text to so many bytes, between two characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
