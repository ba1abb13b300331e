package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"
)

// printJSON prints one value in one line. The control characters that JSON
// need not escape, and what turns the direction of writing, are escaped as well.
func printJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	line := b.Bytes()
	if bytes.ContainsFunc(line[:len(line)-1], harmful) {
		var clean bytes.Buffer
		for i := 0; i < len(line)-1; {
			r, n := utf8.DecodeRune(line[i:])
			switch {
			case harmful(r) && r > 0xffff:
				r -= 0x10000
				fmt.Fprintf(&clean, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
			case harmful(r):
				fmt.Fprintf(&clean, `\u%04x`, r)
			default:
				clean.Write(line[i : i+n])
			}
			i += n
		}
		clean.WriteByte('\n')
		line = clean.Bytes()
	}
	_, err := w.Write(line)
	return err
}
