package csvimport

import (
	"bytes"
	"encoding/csv"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// parsed is what a record gives.
type parsed struct {
	fields []string
	bad    string
	off    int64
	line   int64
	size   int64
}

func parse(t *testing.T, src io.Reader, sep byte, off, lines int64, limit int) (all []parsed) {
	t.Helper()
	r := newRecords(src, sep, off, lines)
	r.limit = limit
	for {
		rec, err := r.next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		fields, bad := rec.fields(sep)
		all = append(all, parsed{fields, bad, rec.off, rec.line, rec.size})
	}
}

func TestRecords(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text  string
		limit int
		want  []parsed
	}{
		"empty":           {"", 0, nil},
		"plain":           {"a,b\nc,d\n", 0, []parsed{{[]string{"a", "b"}, "", 0, 1, 4}, {[]string{"c", "d"}, "", 4, 2, 4}}},
		"no last end":     {"a,b\nc,d", 0, []parsed{{[]string{"a", "b"}, "", 0, 1, 4}, {[]string{"c", "d"}, "", 4, 2, 3}}},
		"CR LF":           {"a,b\r\n\"c\",\"d\"\r\ne", 0, []parsed{{[]string{"a", "b"}, "", 0, 1, 5}, {[]string{"c", "d"}, "", 5, 2, 9}, {[]string{"e"}, "", 14, 3, 1}}},
		"mark":            {"\xef\xbb\xbfa,b\n", 0, []parsed{{[]string{"a", "b"}, "", 3, 1, 4}}},
		"half a mark":     {"\xef\xbb", 0, []parsed{{nil, "not valid UTF-8", 0, 1, 2}}},
		"quoted line end": {"\"a\r\nb\",c\nd\n", 0, []parsed{{[]string{"a\r\nb", "c"}, "", 0, 1, 9}, {[]string{"d"}, "", 9, 3, 2}}},
		"doubled quotes":  {`"a ""b"" c",""""` + "\n", 0, []parsed{{[]string{`a "b" c`, `"`}, "", 0, 1, 17}}},
		"empty fields":    {",\"\",\n", 0, []parsed{{[]string{"", "", ""}, "", 0, 1, 5}}},
		"empty line":      {"a\n\nb\n", 0, []parsed{{[]string{"a"}, "", 0, 1, 2}, {[]string{""}, "", 2, 2, 1}, {[]string{"b"}, "", 3, 3, 2}}},
		"a quote inside":  {"5\" pipe,x\n", 0, []parsed{{[]string{`5" pipe`, "x"}, "", 0, 1, 10}}},
		"NUL":             {"a\x00\nb\n", 0, []parsed{{nil, "a NUL byte", 0, 1, 3}, {[]string{"b"}, "", 3, 2, 2}}},
		"not UTF-8":       {"a\xff\nb\n", 0, []parsed{{nil, "not valid UTF-8", 0, 1, 3}, {[]string{"b"}, "", 3, 2, 2}}},
		"after a quote":   {"\"a\"b,c\nd\n", 0, []parsed{{nil, "text after a closing quote", 0, 1, 7}, {[]string{"d"}, "", 7, 2, 2}}},
		"CR after quote":  {"\"a\"\rb\nc\n", 0, []parsed{{nil, "text after a closing quote", 0, 1, 6}, {[]string{"c"}, "", 6, 2, 2}}},
		"never closed":    {"a\n\"b\nc\n", 0, []parsed{{[]string{"a"}, "", 0, 1, 2}, {nil, "a quote is not closed", 2, 2, 5}}},
		"too long":        {"aaaaaaaaaaaaaaaaaaaa\nb\n", 8, []parsed{{nil, tooLongText, 0, 1, 21}, {[]string{"b"}, "", 21, 2, 2}}},
		"closed too late": {"\"a\nb\nc\nd\ne\nf\ng\"\nh\n", 8, []parsed{{nil, tooLongText, 0, 1, 9}, {[]string{"e"}, "", 9, 5, 2},
			{[]string{"f"}, "", 11, 6, 2}, {[]string{"g\""}, "", 13, 7, 3}, {[]string{"h"}, "", 16, 8, 2}}},
		"as long as may be": {"abcdefg\nb", 8, []parsed{{[]string{"abcdefg"}, "", 0, 1, 8}, {[]string{"b"}, "", 8, 2, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.limit == 0 {
				test.limit = maxRecord
			}
			got := parse(t, strings.NewReader(test.text), ',', 0, 0, test.limit)
			same(t, got, test.want)
			same(t, parse(t, iotest.OneByteReader(strings.NewReader(test.text)), ',', 0, 0, test.limit), test.want)
		})
	}
}

const tooLongText = "longer than a record may be, or a quote that is not closed"

func same(t *testing.T, got, want []parsed) {
	t.Helper()
	if !slices.EqualFunc(got, want, func(a, b parsed) bool {
		return slices.Equal(a.fields, b.fields) && a.bad == b.bad && a.off == b.off && a.line == b.line && a.size == b.size
	}) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

// FuzzRecords: every byte belongs to one record, and reading on from any
// record's offset gives the records that reading through gave. What encoding/csv can
// read, it reads alike.
func FuzzRecords(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "\xef\xbb\xbf\"x\r\ny\",\"\"\"\"\r\n\"open\n1,2", "\"a\"b\n\x00\n\xff,\n,\r\n\r", "long long long line\n\"\n\n\n\n\n\n\n\n\n\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		text = text[:min(len(text), 1000)] // reading on from everywhere takes the square of it
		for _, limit := range []int{16, maxRecord} {
			all := parse(t, iotest.HalfReader(bytes.NewReader(text)), ',', 0, 0, limit)
			end := int64(0)
			if bytes.HasPrefix(text, []byte("\xef\xbb\xbf")) {
				end = 3
			}
			for i, rec := range all {
				if rec.off != end || rec.size <= 0 || rec.line != 1+int64(bytes.Count(text[:end], []byte("\n"))) {
					t.Fatalf("record %d: %+v, but the one before it ends at %d", i, rec, end)
				}
				if i > 0 {
					same(t, parse(t, bytes.NewReader(text[rec.off:]), ',', rec.off, rec.line-1, limit), all[i:])
				}
				end += rec.size
			}
			if end != int64(len(text)) {
				t.Fatalf("%d of %d bytes were read", end, len(text))
			}
			if limit == maxRecord {
				likeTheLibrary(t, text, all)
			}
		}
	})
}

// likeTheLibrary compares with encoding/csv where both can read the text: it
// drops empty lines and CRs before line ends, and takes no byte order mark off.
func likeTheLibrary(t *testing.T, text []byte, all []parsed) {
	t.Helper()
	if bytes.HasPrefix(text, []byte("\xef\xbb\xbf")) || bytes.Contains(text, []byte("\r")) {
		return
	}
	r := csv.NewReader(bytes.NewReader(text))
	r.FieldsPerRecord = -1
	want, err := r.ReadAll()
	if err != nil {
		return
	}
	var got [][]string
	for _, rec := range all {
		if rec.bad != "" {
			if rec.bad == "a NUL byte" || rec.bad == "not valid UTF-8" {
				return
			}
			t.Fatalf("encoding/csv reads it, but here: %+v", rec)
		}
		if rec.size == 1 && text[rec.off] == '\n' {
			continue
		}
		got = append(got, rec.fields)
	}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Fatalf("\n got %q\nwant %q", got, want)
	}
}
