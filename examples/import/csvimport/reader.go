package csvimport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"

	"github.com/pawlworks/pawl/steps"
)

// maxBatch bounds the bytes of a chunk: its rows are in memory at once.
const maxBatch = 4 << 20

// batch is a chunk of the file, and the place behind it.
type batch struct {
	rows []row
	bad  []badRecord
	off  int64 // where the next record begins
	line int64 // lines before it
}

type row struct {
	line   int64
	values []string
}

type badRecord struct {
	record
	reason string
}

// reader reads a file from a place on.
type reader struct {
	file    *os.File
	of      File
	records *records
	columns int
	err     error
}

// openAt opens the file at an offset behind so many lines.
func openAt(f File, off, lines int64, columns int) (*reader, error) {
	sep, err := separator(f.Sep)
	if err != nil {
		return nil, steps.Permanent("BAD_SEPARATOR", err)
	}
	file, err := os.Open(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, steps.Permanent("NO_FILE", err)
	}
	if err != nil {
		return nil, err
	}
	r := &reader{file: file, of: f, records: newRecords(file, sep, off, lines), columns: columns}
	_, err = file.Seek(off, io.SeekStart)
	if err = errors.Join(r.unchanged(), err); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return r, nil
}

func (r *reader) close() { _ = r.file.Close() }

// unchanged compares the open file with what the run was started for.
func (r *reader) unchanged() error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != r.of.Size || !info.ModTime().Equal(r.of.Modified) {
		return steps.Permanent("FILE_CHANGED", fmt.Errorf("%s had %d bytes of %s, it has %d of %s now: start an import of what it is now",
			r.of.Path, r.of.Size, r.of.Modified.UTC(), info.Size(), info.ModTime().UTC()))
	}
	return nil
}

// batches yields chunks of at most n records until the end of the file or an
// error, which is in r.err then.
func (r *reader) batches(n int) iter.Seq[batch] {
	return func(yield func(batch) bool) {
		for {
			b, err := r.batch(n)
			if len(b.rows)+len(b.bad) > 0 && !yield(b) {
				return
			}
			if err == io.EOF {
				r.err = r.unchanged()
				return
			}
			if err != nil {
				r.err = err
				return
			}
		}
	}
}

func (r *reader) batch(n int) (b batch, err error) {
	for size := int64(0); len(b.rows)+len(b.bad) < n && size < maxBatch; {
		rec, err := r.records.next()
		if err != nil {
			return b, err
		}
		size += rec.size
		b.off, b.line = r.records.off, r.records.line
		if len(rec.raw) == 0 && rec.bad == "" && r.columns > 1 {
			continue // an empty line is no record, but in a table of one column
		}
		values, bad := rec.values(r.records.sep, r.columns)
		if bad != "" {
			rec.raw = bytes.Clone(rec.raw) // a slice of it would keep the whole buffer
			b.bad = append(b.bad, badRecord{rec, bad})
			continue
		}
		b.rows = append(b.rows, row{rec.line, values})
	}
	return b, nil
}
