package pgproxy

import (
	"encoding/binary"
	"io"

	"github.com/jackc/pgx/v5/pgproto3"
)

// message is one protocol message after the start-up, as it was sent.
type message []byte

func (m message) kind() byte   { return m[0] }
func (m message) body() []byte { return m[5:] }

// maxMessage is PostgreSQL's own limit; a larger length is a lost framing.
const maxMessage = 1 << 30

func readMessage(r io.Reader) (message, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size < 4 || size > maxMessage {
		return nil, io.ErrUnexpectedEOF
	}
	m := make(message, 1+size)
	copy(m, head[:])
	_, err := io.ReadFull(r, m[5:])
	return m, err
}

// request gathers the messages up to a Sync: what the server answers with one
// ReadyForQuery. BEGIN, statements and COMMIT that travel as one pipeline are
// one request, and share one fate.
type request struct {
	bytes []byte
	sqls  []string // the text of what it executes, in order
}

// reader follows a client's messages and knows which SQL each of them runs.
type reader struct {
	statements map[string]string // prepared, by name
	portals    map[string]string
	open       request // not complete yet
}

func newReader() *reader {
	return &reader{statements: map[string]string{}, portals: map[string]string{}}
}

// end says what a message means for the request that it belongs to.
type end int

const (
	goesOn  end = iota // more is to come
	flushed            // the client wants what there is so far, without a Sync
	synced             // complete; the server will answer with ReadyForQuery
	aside              // belongs to no request: passwords, COPY data, Terminate
)

func (r *reader) add(m message) (end, error) {
	switch m.kind() {
	case 'P':
		var parse pgproto3.Parse
		if err := parse.Decode(m.body()); err != nil {
			return 0, err
		}
		r.statements[parse.Name] = parse.Query
	case 'B':
		var bind pgproto3.Bind
		if err := bind.Decode(m.body()); err != nil {
			return 0, err
		}
		r.portals[bind.DestinationPortal] = r.statements[bind.PreparedStatement]
	case 'E':
		var execute pgproto3.Execute
		if err := execute.Decode(m.body()); err != nil {
			return 0, err
		}
		r.open.sqls = append(r.open.sqls, r.portals[execute.Portal])
	case 'Q':
		var query pgproto3.Query
		if err := query.Decode(m.body()); err != nil {
			return 0, err
		}
		r.open.sqls = append(r.open.sqls, query.String)
		r.open.bytes = append(r.open.bytes, m...)
		return synced, nil
	case 'S', 'F': // 'F' is the old function call
		r.open.bytes = append(r.open.bytes, m...)
		return synced, nil
	case 'H':
		r.open.bytes = append(r.open.bytes, m...)
		return flushed, nil
	case 'D', 'C':
		// Describe runs nothing. A closed statement's name is given anew
		// before it is used again.
	default:
		return aside, nil
	}
	r.open.bytes = append(r.open.bytes, m...)
	return goesOn, nil
}

// take hands out the request gathered so far and begins another.
func (r *reader) take() request {
	taken := r.open
	r.open = request{}
	return taken
}
