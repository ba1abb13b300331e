package csvimport

// scanner finds the end of one record. It keeps its state between calls, so
// that a long record is looked at once, however it arrives.
type scanner struct {
	sep   byte
	state state
	at    int // bytes looked at
}

type state int

const (
	begins   state = iota // a field begins
	bare                  // in a field without quotes; a quote in it is a character
	quoted                // between quotes
	closed                // after a quote that ends a field, or doubles
	closedCR              // and after a CR behind it
	broken                // text after a closing quote: to the end of the line
)

// scan looks at b, the record from its beginning, and returns its length with
// the line's end, once it is there.
func (s *scanner) scan(b []byte) (int, bool) {
	for ; s.at < len(b); s.at++ {
		c := b[s.at]
		if c == '\n' && s.state != quoted {
			s.at++
			return s.at, true
		}
		s.state = s.after(c)
	}
	return s.at, false
}

func (s *scanner) after(c byte) state {
	switch s.state {
	case begins, bare:
		switch {
		case c == s.sep:
			return begins
		case c == '"' && s.state == begins:
			return quoted
		}
		return bare
	case quoted:
		if c == '"' {
			return closed
		}
		return quoted
	case closed:
		switch c {
		case '"':
			return quoted
		case s.sep:
			return begins
		case '\r':
			return closedCR
		}
	}
	return broken
}

// broken tells what is wrong with a record that has ended.
func (s *scanner) broken() string {
	switch s.state {
	case quoted:
		return "a quote is not closed"
	case broken:
		return "text after a closing quote"
	}
	return ""
}
