package csvimport

import (
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestSample(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	path, err := Sample()
	if err != nil {
		t.Fatal(err)
	}
	first, err := NewFile(path, "", false)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// As sample/README.md says.
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != "6a2a3bb4983b3edcae727ed890406fc678023bd8e5010e4fb89e1312ee3885ae" {
		t.Errorf("the sample is not the original: %x", sum)
	}
	for name, spoil := range map[string]func() error{
		"removed": func() error { return os.RemoveAll(filepath.Dir(path)) },
		"spoilt":  func() error { return os.WriteFile(path, text[1:], 0o600) },
		"touched": func() error { return os.Chtimes(path, time.Time{}, time.Now()) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		again, err := Sample()
		if err != nil || again != path {
			t.Fatal(again, err)
		}
		if f, err := NewFile(path, "", false); err != nil || f != first {
			t.Errorf("%s: %+v, %v, want %+v", name, f, err, first)
		}
	}
}

// TestSampleRows reads the sample with this package's reader and with
// encoding/csv.
func TestSampleRows(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	path, err := Sample()
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewFile(path, "", false)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := readLayout(f)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"registry", "assignment", "organization_name", "organization_address"}; !slices.Equal(layout.Columns, want) {
		t.Errorf("columns %q", layout.Columns)
	}
	want := reference(t, path)[1:]
	r, err := openAt(f, layout.Off, layout.Line, len(layout.Columns))
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	n := 0
	for b := range r.batches(1000) {
		if len(b.bad) > 0 {
			t.Fatalf("%+v", b.bad)
		}
		for _, row := range b.rows {
			if !slices.Equal(row.values, want[n]) {
				t.Fatalf("row %d: %q, want %q", n, row.values, want[n])
			}
			n++
		}
	}
	if r.err != nil || n != len(want) || n != 32530 {
		t.Errorf("%d rows of %d, %v", n, len(want), r.err)
	}
}

// reference reads a file with the library: header and rows.
func reference(t *testing.T, path string) [][]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return all
}
