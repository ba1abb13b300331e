// Package pgproxy stands between a PostgreSQL client and its server and breaks
// the connection at a chosen request. It reads the client's messages, so a test
// chooses by the text of the SQL:
//
//	p, err := pgproxy.New(server.Addr())
//	p.OnExecute(func(sql string) pgproxy.Action {
//		if strings.HasPrefix(sql, "COMMIT") {
//			return pgproxy.CutAfter
//		}
//		return pgproxy.Pass
//	})
//	pool, err := pgxpool.New(ctx, p.URL(url))
//
// COPY's data is passed on as it comes; a request that begins a COPY FROM can't
// be met with CutAfter.
package pgproxy

import (
	"net"
	"net/url"
	"sync"
)

// Proxy is one listener and the connections made through it.
type Proxy struct {
	target   string
	listener net.Listener
	stall    *gate
	work     sync.WaitGroup

	mu     sync.Mutex
	onExec func(sql string) Action
	links  map[*link]struct{}
	fired  [kinds]int
	deaf   map[uint32]struct{} // server processes whose link was ever stalled
	closed bool
}

// New listens on a loopback port and forwards to target, a host and port.
func New(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: listener, stall: newGate(), links: map[*link]struct{}{}, deaf: map[uint32]struct{}{}}
	p.work.Go(p.accept)
	return p, nil
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		l := newLink(p, client)
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			l.cut()
			return
		}
		p.links[l] = struct{}{}
		p.mu.Unlock()
		p.work.Go(func() {
			l.serve()
			p.mu.Lock()
			delete(p.links, l)
			p.mu.Unlock()
		})
	}
}

// Addr is the host and port that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL is the server's connection string with the proxy's address in it.
func (p *Proxy) URL(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server // the client will say what is wrong with it
	}
	u.Host = p.Addr()
	return u.String()
}

// OnExecute sets what decides about requests; nil lets all pass. It is called
// with the SQL of every statement that a request executes, in order; the first
// answer other than Pass holds for the whole request. Requests of several
// connections may call it at the same time.
func (p *Proxy) OnExecute(f func(sql string) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onExec = f
}

func (p *Proxy) decide(sqls []string) Action {
	p.mu.Lock()
	f := p.onExec
	p.mu.Unlock()
	if f == nil {
		return Pass
	}
	for _, sql := range sqls {
		if action := f(sql); action.kind != pass {
			return action
		}
	}
	return Pass
}

// Fired counts how often an action took place; every Delay counts as one kind.
// A test that wants a fault proves with it that the fault happened. CutAfter
// counts when the server's answer is there.
func (p *Proxy) Fired(a Action) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fired[a.kind]
}

func (p *Proxy) fire(a Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fired[a.kind]++
}

// CutAll closes all present connections; new ones are welcome.
func (p *Proxy) CutAll() {
	for _, l := range p.all() {
		l.cut()
	}
}

// StallAll makes a black hole of everything, new connections too.
func (p *Proxy) StallAll() {
	p.stall.shut()
	for _, l := range p.all() {
		p.deafen(l)
	}
}

// shut stalls one link.
func (p *Proxy) shut(l *link) {
	p.deafen(l)
	l.stall.shut()
}

func (p *Proxy) deafen(l *link) {
	l.mu.Lock()
	pid := l.pid
	l.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf[pid] = struct{}{}
}

// unheard tells whether a request to cancel is to be lost.
func (p *Proxy) unheard(pid uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, deaf := p.deaf[pid]
	return deaf
}

// Release ends StallAll and every Stall. What was held arrives.
func (p *Proxy) Release() {
	p.stall.open()
	for _, l := range p.all() {
		l.stall.open()
	}
}

func (p *Proxy) all() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	return links
}

// Close cuts everything and returns when no goroutine is left.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.CutAll()
	p.work.Wait()
}
