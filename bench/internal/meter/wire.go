package meter

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
)

// Wire counts what goes through the connections that its Dial makes.
type Wire struct {
	dialer     net.Dialer
	roundTrips atomic.Int64
	statements atomic.Int64
	sent       atomic.Int64
	received   atomic.Int64
}

// Traffic is what has gone through so far.
type Traffic struct {
	RoundTrips int64 // writes that follow a read
	Statements int64 // executions, BEGIN and COMMIT included
	Sent       int64 // bytes
	Received   int64
}

// Traffic reads the counters.
func (w *Wire) Traffic() Traffic {
	return Traffic{w.roundTrips.Load(), w.statements.Load(), w.sent.Load(), w.received.Load()}
}

// Minus is the traffic since an earlier reading.
func (t Traffic) Minus(o Traffic) Traffic {
	return Traffic{t.RoundTrips - o.RoundTrips, t.Statements - o.Statements, t.Sent - o.Sent, t.Received - o.Received}
}

// Dial is a pgconn.DialFunc. The connection must not be encrypted.
func (w *Wire) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := w.dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	wc := &wireConn{Conn: c, wire: w}
	wc.read.Store(true)
	return wc, nil
}

type wireConn struct {
	net.Conn
	wire *Wire
	read atomic.Bool // since the last write

	// Of the stream of messages to the server, touched by Write alone:
	started bool // the start-up message, which has no type, is through
	head    [5]byte
	have    int   // bytes of head
	skip    int64 // bytes until the next message
}

func (c *wireConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.wire.received.Add(int64(n))
		c.read.Store(true)
	}
	return n, err
}

func (c *wireConn) Write(b []byte) (int, error) {
	if c.read.Swap(false) {
		c.wire.roundTrips.Add(1)
	}
	c.wire.sent.Add(int64(len(b)))
	c.parse(b)
	return c.Conn.Write(b)
}

// parse counts the messages Query and Execute. A message is a type of one byte
// and a length of four, which counts itself.
func (c *wireConn) parse(b []byte) {
	for len(b) > 0 {
		if c.skip > 0 {
			n := min(c.skip, int64(len(b)))
			c.skip -= n
			b = b[n:]
			continue
		}
		want := 5
		if !c.started {
			want = 4
		}
		n := copy(c.head[c.have:want], b)
		c.have += n
		b = b[n:]
		if c.have < want {
			return
		}
		c.skip = int64(binary.BigEndian.Uint32(c.head[want-4:want])) - 4
		if c.started && (c.head[0] == 'Q' || c.head[0] == 'E') {
			c.wire.statements.Add(1)
		}
		c.started, c.have = true, 0
	}
}
