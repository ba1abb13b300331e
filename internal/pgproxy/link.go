package pgproxy

import (
	"bufio"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// link is one client's connection and the one to the server behind it. Two
// goroutines work for it: up carries the client's requests, down the answers.
type link struct {
	proxy  *Proxy
	client net.Conn
	server net.Conn // nil until the client has told who it is

	closed chan struct{}
	once   sync.Once
	stall  *gate

	mu      sync.Mutex
	due     int    // ReadyForQuery messages that the server owes or has sent
	lostDue int    // the number of the one that ends the lost answer; 0: none
	pid     uint32 // of the server's process, which requests to cancel name
}

func newLink(p *Proxy, client net.Conn) *link {
	// The server is ready once before it was asked anything.
	return &link{proxy: p, client: client, closed: make(chan struct{}), stall: newGate(), due: 1}
}

// cut closes both sides.
func (l *link) cut() {
	l.once.Do(func() {
		close(l.closed)
		_ = l.client.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.server != nil {
			_ = l.server.Close()
		}
	})
}

// flow waits while the link or the whole proxy is stalled; false: it was cut.
func (l *link) flow() bool {
	return l.stall.wait(l.closed) && l.proxy.stall.wait(l.closed)
}

func (l *link) serve() {
	defer l.cut()
	if !l.startUp() {
		return
	}
	var down sync.WaitGroup
	down.Go(func() { defer l.cut(); l.down() })
	l.up()
	l.cut()
	down.Wait()
}

// startUp reads what comes before ordinary messages and dials the server.
func (l *link) startUp() bool {
	backend := pgproto3.NewBackend(l.client, l.client)
	for {
		first, err := backend.ReceiveStartupMessage()
		if err != nil || !l.flow() {
			return false
		}
		switch first := first.(type) {
		case *pgproto3.CancelRequest:
			if l.proxy.unheard(first.ProcessID) {
				return false
			}
		case *pgproto3.SSLRequest, *pgproto3.GSSEncRequest:
			// We want to read along.
			if _, err := l.client.Write([]byte("N")); err != nil {
				return false
			}
			continue
		}
		if !l.dial() {
			return false
		}
		text, err := first.Encode(nil)
		if err != nil {
			return false
		}
		_, err = l.server.Write(text)
		// A request to cancel has no answer; the server closes.
		return err == nil
	}
}

func (l *link) dial() bool {
	server, err := net.Dial("tcp", l.proxy.target)
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		_ = server.Close()
		return false
	default:
		l.server = server
		return true
	}
}

// up gathers each request whole before the server sees any of it.
func (l *link) up() {
	in, client := newReader(), bufio.NewReader(l.client)
	for {
		m, err := readMessage(client)
		if err != nil {
			return
		}
		how, err := in.add(m)
		if err != nil {
			return
		}
		switch how {
		case goesOn:
			continue
		case aside:
			if !l.flow() {
				return
			}
			if _, err := l.server.Write(m); err != nil {
				return
			}
		default:
			if !l.forward(in.take(), how) {
				return
			}
		}
	}
}

// forward deals with a request as the test wishes; false ends the link.
func (l *link) forward(r request, how end) bool {
	action := l.proxy.decide(r.sqls)
	switch action.kind {
	case cutBefore:
		l.proxy.fire(action)
		return false
	case stall:
		l.proxy.shut(l)
		l.proxy.fire(action)
	case delay:
		l.proxy.fire(action)
		timer := time.NewTimer(action.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.closed:
			return false
		}
	case cutAfter:
		if how == flushed {
			// Only a Sync makes the end of the answer visible.
			r.bytes, _ = (&pgproto3.Sync{}).Encode(r.bytes)
			how = synced
		}
	}
	if !l.flow() {
		return false
	}
	if how == synced {
		l.mu.Lock()
		l.due++
		if action.kind == cutAfter {
			l.lostDue = l.due
		}
		l.mu.Unlock()
	}
	_, err := l.server.Write(r.bytes)
	if action.kind == cutAfter && err == nil {
		// Nothing more may reach the server; down cuts when it has answered.
		<-l.closed
		return false
	}
	return err == nil
}

// down carries answers, except one that is to be lost.
func (l *link) down() {
	server, ready := bufio.NewReader(l.server), 0
	for {
		m, err := readMessage(server)
		if err != nil || !l.flow() {
			return
		}
		l.mu.Lock()
		lost := l.lostDue != 0 && ready == l.lostDue-1
		l.mu.Unlock()
		switch m.kind() {
		case 'K':
			var key pgproto3.BackendKeyData
			if err := key.Decode(m.body()); err != nil {
				return
			}
			l.mu.Lock()
			l.pid = key.ProcessID
			l.mu.Unlock()
		case 'Z':
			ready++
		}
		if !lost {
			if _, err := l.client.Write(m); err != nil {
				return
			}
		} else if m.kind() == 'Z' {
			l.proxy.fire(CutAfter)
			return
		}
	}
}
