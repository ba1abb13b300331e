// Package csvimport imports CSV files into tables as durable runs: an example
// of a long step with a cursor.
//
// A run has two steps. "prepare" reads the header and makes the tables, in one
// transaction with its own completion. "rows" copies the file chunk by chunk;
// each chunk's rows and the cursor that stands after them commit together, so a
// worker that is killed at any moment leaves whole chunks and the exact offset to
// go on from: no row is lost and none comes twice.
package csvimport

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pawlworks/pawl/steps"
)

// Import is the contract: all that a caller needs.
var Import = steps.Declare[File, Stats]("import-csv")

// File is what to import. Every worker must find the file under Path.
type File struct {
	Path     string
	Size     int64
	Modified time.Time
	Sep      string // one ASCII character; empty: a comma
	NoHeader bool   // the first record is a row like the others; the columns are numbered
	Schema   string // the PostgreSQL schema to make for the tables "rows" and "bad"
}

// Stats is the result: how many records became rows, and how many could not.
type Stats struct{ Rows, Bad int64 }

// NewFile describes the file as it is now. A run that later finds another
// size or another time of modification is dead with FILE_CHANGED: half of one file and
// half of another would be worse than no import.
func NewFile(path, sep string, noHeader bool) (File, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return File{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return File{}, err
	}
	if !info.Mode().IsRegular() {
		return File{}, fmt.Errorf("%s is not a regular file: a run must be able to read it again from the middle", path)
	}
	if _, err := separator(sep); err != nil {
		return File{}, err
	}
	if sep == "" {
		sep = ","
	}
	f := File{Path: path, Size: info.Size(), Modified: info.ModTime().UTC(), Sep: sep, NoHeader: noHeader}
	f.Schema = schemaName(path, f.digest())
	return f, nil
}

// Key is the caller's key of the file's import: the same file, unchanged, is
// imported once, however often it is started.
func (f File) Key() string { return f.digest() }

func (f File) digest() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d %q %t", f.Path, f.Size, f.Modified.UnixNano(), f.Sep, f.NoHeader))
	return hex.EncodeToString(sum[:16])
}

// separator is the one byte that parts fields.
func separator(s string) (byte, error) {
	switch {
	case s == "":
		return ',', nil
	case len(s) == 1 && s[0] < 0x80 && s != "\"" && s != "\n" && s != "\r" && s != "\x00":
		return s[0], nil
	}
	return 0, fmt.Errorf("separator %q: give one ASCII character that is no quote and no line end", s)
}
