package csvimport

import (
	"bytes"
	"io"
)

// maxRecord bounds a record: a quote that nobody closes must not read the rest
// of the file into memory.
const maxRecord = 1 << 20

// record is one record of the file. A structure that can't be read (bad says
// why) ends with a line like any other, so that the next one begins where a line begins.
type record struct {
	raw  []byte // without the line's end; good until the next call
	off  int64  // where it begins
	line int64  // the number of its first line, from 1
	size int64  // in the file: more than raw where that was cut
	bad  string
}

// records cuts a file into records at exact offsets: encoding/csv joins line
// ends inside quotes and goes on behind a broken quote wherever it stands; here
// every byte belongs to one record.
type records struct {
	src   io.Reader
	sep   byte
	limit int // maxRecord, less in tests

	buf  []byte // what is read and not consumed
	eof  bool
	off  int64 // of buf[0]
	line int64 // lines before buf[0]
}

func newRecords(src io.Reader, sep byte, off, lines int64) *records {
	return &records{src: src, sep: sep, limit: maxRecord, off: off, line: lines}
}

// next returns the next record, io.EOF after the last.
func (r *records) next() (record, error) {
	if r.off == 0 {
		if err := r.skipMark(); err != nil {
			return record{}, err
		}
	}
	s := scanner{sep: r.sep}
	n, found := 0, false
	for {
		if n, found = s.scan(r.buf); found || len(r.buf) > r.limit {
			break
		}
		if r.eof {
			if len(r.buf) == 0 {
				return record{}, io.EOF
			}
			n = len(r.buf)
			break
		}
		if err := r.fill(); err != nil {
			return record{}, err
		}
	}
	rec := record{off: r.off, line: r.line + 1, bad: s.broken()}
	if n > r.limit {
		return r.tooLong(rec)
	}
	rec.raw, rec.size = cutEnd(r.buf[:n]), int64(n)
	r.consume(n)
	return rec, nil
}

// tooLong keeps the record's beginning and goes on behind the line in which
// the limit was passed.
func (r *records) tooLong(rec record) (record, error) {
	rec.bad = "longer than a record may be, or a quote that is not closed"
	rec.raw = bytes.Clone(r.buf[:r.limit])
	r.consume(r.limit - 1)
	for {
		if i := bytes.IndexByte(r.buf, '\n'); i >= 0 {
			r.consume(i + 1)
			break
		}
		r.consume(len(r.buf))
		if r.eof {
			break
		}
		if err := r.fill(); err != nil {
			return record{}, err
		}
	}
	rec.size = r.off - rec.off
	return rec, nil
}

func (r *records) consume(n int) {
	r.line += int64(bytes.Count(r.buf[:n], []byte{'\n'}))
	r.off += int64(n)
	r.buf = r.buf[n:]
}

// fill reads on. What was handed out must stay, so it never moves bytes in place.
func (r *records) fill() error {
	const chunk = 64 << 10
	if cap(r.buf)-len(r.buf) < chunk/2 {
		r.buf = append(make([]byte, 0, 2*len(r.buf)+chunk), r.buf...)
	}
	n, err := r.src.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf = r.buf[:len(r.buf)+n]
	if err == io.EOF {
		r.eof = true
		return nil
	}
	return err
}

// skipMark passes over the byte order mark that some programs write.
func (r *records) skipMark() error {
	mark := []byte("\xef\xbb\xbf")
	for len(r.buf) < len(mark) && !r.eof {
		if err := r.fill(); err != nil {
			return err
		}
	}
	if bytes.HasPrefix(r.buf, mark) {
		r.consume(len(mark))
	}
	return nil
}

// cutEnd takes the line's end off.
func cutEnd(b []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(b, []byte{'\n'}), []byte{'\r'})
}
