package csvimport

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlworks/pawl/steps"
)

func TestDefinition(t *testing.T) {
	t.Parallel()
	if err := (&Importer{}).Import().Err(); err != nil {
		t.Error(err)
	}
}

func TestBatches(t *testing.T) {
	t.Parallel()
	f := write(t, "a;b\n1;2\n\n3\n4;5\n\"6\"x;7\n8;\"9\n9\"\n\n", ";")
	layout, err := readLayout(f)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(layout.Columns, []string{"a", "b"}) || layout.Off != 4 || layout.Line != 1 {
		t.Fatalf("%+v", layout)
	}
	r, err := openAt(f, layout.Off, layout.Line, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	var lines, badLines []int64
	var reasons []string
	var last batch
	for b := range r.batches(2) {
		if n := len(b.rows) + len(b.bad); n < 1 || n > 2 {
			t.Errorf("a batch of %d", n)
		}
		for _, row := range b.rows {
			lines = append(lines, row.line)
		}
		for _, bad := range b.bad {
			badLines = append(badLines, bad.line)
			reasons = append(reasons, bad.reason+": "+string(bad.raw))
		}
		last = b
	}
	if r.err != nil {
		t.Fatal(r.err)
	}
	if !slices.Equal(lines, []int64{2, 5, 7}) || !slices.Equal(badLines, []int64{4, 6}) {
		t.Errorf("rows at %v, bad ones at %v", lines, badLines)
	}
	if want := []string{"fields: 1, not 2: 3", "text after a closing quote: \"6\"x;7"}; !slices.Equal(reasons, want) {
		t.Errorf("%q", reasons)
	}
	if last.off != f.Size || last.line != 9 {
		t.Errorf("the last batch ends at %d, line %d", last.off, last.line)
	}
}

func TestOneColumn(t *testing.T) {
	t.Parallel()
	f := write(t, "only\na\n\nb\n", "")
	r, err := openAt(f, 5, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	b, _ := r.batch(10)
	if len(b.rows) != 3 || b.rows[1].values[0] != "" {
		t.Errorf("an empty line is an empty value where there is one column: %v", b.rows)
	}
}

func TestLayoutRefusals(t *testing.T) {
	t.Parallel()
	for text, code := range map[string]string{
		"":                        "NO_HEADER",
		"\xff\xfea\x00":           "BAD_HEADER",
		"\"a\n":                   "BAD_HEADER",
		strings.Repeat(",", 1600): "BAD_HEADER",
	} {
		if _, err := readLayout(write(t, text, "")); codeOf(err) != code {
			t.Errorf("%.10q: %v, want %s", text, err, code)
		}
	}
	layout, err := readLayout(File{Path: "nowhere", Sep: "ab"})
	if codeOf(err) != "BAD_SEPARATOR" {
		t.Errorf("%v, %v", layout, err)
	}
	if _, err := readLayout(File{Path: filepath.Join(t.TempDir(), "nowhere")}); codeOf(err) != "NO_FILE" {
		t.Error(err)
	}
}

func TestNoHeader(t *testing.T) {
	t.Parallel()
	f := write(t, "1,2\n3,4\n", "")
	f.NoHeader = true
	layout, err := readLayout(f)
	if err != nil || layout.Off != 0 || layout.Line != 0 || !slices.Equal(layout.Columns, []string{"column_1", "column_2"}) {
		t.Errorf("%+v, %v", layout, err)
	}
}

func TestFileChanged(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(path string) error{
		"longer": func(path string) error { return os.WriteFile(path, []byte("a,b\n1,2\n3,4\n5,6\n"), 0o600) },
		"touched": func(path string) error {
			return os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := write(t, "a,b\n1,2\n3,4\n", "")
			r, err := openAt(f, 4, 1, 2)
			if err != nil {
				t.Fatal(err)
			}
			defer r.close()
			if err := change(f.Path); err != nil {
				t.Fatal(err)
			}
			if _, err := openAt(f, 4, 1, 2); codeOf(err) != "FILE_CHANGED" {
				t.Errorf("opened again: %v", err)
			}
			for range r.batches(1) {
			}
			if codeOf(r.err) != "FILE_CHANGED" {
				t.Errorf("read to the end: %v", r.err)
			}
		})
	}
}

func TestNewFile(t *testing.T) {
	t.Parallel()
	a := write(t, "x\n", "")
	b, err := NewFile(a.Path, ",", false)
	if err != nil || b != a {
		t.Errorf("%+v, %v: a comma is the default", b, err)
	}
	if b, err := NewFile(a.Path, ";", false); err != nil || b.Key() == a.Key() || b.Schema == a.Schema {
		t.Errorf("%+v, %v: another import", b, err)
	}
	for _, sep := range []string{"ab", "\n", "\"", "é"} {
		if _, err := NewFile(a.Path, sep, false); err == nil {
			t.Errorf("separator %q was accepted", sep)
		}
	}
	if _, err := NewFile(t.TempDir(), "", false); err == nil {
		t.Error("a directory was accepted")
	}
}

func TestStepInMemory(t *testing.T) {
	t.Parallel()
	f := write(t, "a,b\n1,2\n", "")
	cur := steps.NewCursor(Pos{Off: f.Size, Line: 2, Stats: Stats{Rows: 7, Bad: 2}})
	got, err := (&Importer{}).rows(t.Context(), source{f, Layout{Columns: []string{"a", "b"}, Off: 4, Line: 1}}, cur)
	if err != nil || got != (Stats{7, 2}) {
		t.Errorf("from a cursor at the end: %+v, %v", got, err)
	}
}

func write(t *testing.T, text, sep string) File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "table.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := NewFile(path, sep, false)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func codeOf(err error) string {
	var e *steps.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
