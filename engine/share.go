package engine

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/jackc/pgx/v5/pgxpool"
)

// share is what the engines of a process that use the same pool have in
// common, so that any number of them leave connections free for the writers
// and keepers of all: one listener, and one limit on the transactions that are
// open around users' code.
type share struct {
	txs    chan struct{}
	keeps  chan struct{}      // connections that writers keep
	lane   chan *pgxpool.Conn // the one connection, when it is not in use
	broken chan struct{}      // it has been thrown away
	turns  atomic.Int64       // of lane and pool

	mu        sync.Mutex
	listeners map[string]*listener // by ListenDSN
	working   int                  // workers that keep the lane
	end       context.CancelFunc
	ended     chan struct{}
}

// Connections that a pool keeps free of users' transactions: for the
// committer, the keeper and the listener.
const keptFree = 3

// The lane is one connection that is held while anybody works: sessions and
// leases are renewed on it, so that users' code can't be in the way, and so
// often that its death is noticed. A smaller pool has none.
const (
	minPoolLane = 4
	laneAfter   = 250 * time.Millisecond
)

var shares = struct {
	sync.Mutex
	of map[weak.Pointer[pgxpool.Pool]]*share // a pool that nobody has any more takes its share along
}{of: map[weak.Pointer[pgxpool.Pool]]*share{}}

func shareOf(pool *pgxpool.Pool) *share {
	shares.Lock()
	defer shares.Unlock()
	key := weak.Make(pool)
	s := shares.of[key]
	if s == nil {
		txs, keeps := max(1, int(pool.Config().MaxConns)-keptFree), 0
		if pool.Config().MaxConns >= minPoolKept {
			txs, keeps = txs-committers, committers
		}
		s = &share{txs: make(chan struct{}, txs), keeps: make(chan struct{}, keeps), lane: make(chan *pgxpool.Conn, 1), broken: make(chan struct{}, 1), listeners: map[string]*listener{}}
		shares.of[key] = s
		runtime.AddCleanup(pool, func(key weak.Pointer[pgxpool.Pool]) {
			shares.Lock()
			defer shares.Unlock()
			delete(shares.of, key)
		}, key)
	}
	return s
}

func (s *share) listener(dsn string) *listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.listeners[dsn]
	if l == nil {
		l = &listener{dsn: dsn, subs: map[int]func(string){}}
		s.listeners[dsn] = l
	}
	return l
}

// keepLane holds the lane until it is let go as often.
func (s *share) keepLane(pool *pgxpool.Pool) (letGo func()) {
	if pool.Config().MaxConns < minPoolLane {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.working++; s.working == 1 {
		before := s.ended
		ctx, end := context.WithCancel(context.Background())
		s.end, s.ended = end, make(chan struct{})
		go s.serveLane(ctx, pool, before, s.ended)
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.working--
		last, ended := s.working == 0, s.ended
		if last {
			s.end()
		}
		s.mu.Unlock()
		if last {
			<-ended
		}
	})
}

// serveLane lays the connection out, and another when that is broken.
func (s *share) serveLane(ctx context.Context, pool *pgxpool.Pool, before <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	if before != nil {
		<-before
	}
	for {
		c, err := pool.Acquire(ctx)
		if err != nil {
			if !sleep(ctx, spread(downLatest)) {
				return
			}
			continue
		}
		s.lane <- c
		select {
		case <-s.broken:
			continue
		case <-ctx.Done():
		}
		select { // when nobody uses it any more
		case <-s.broken:
		case c := <-s.lane:
			c.Release()
		}
		return
	}
}

// acquire takes by turns the lane, so that its death is noticed, and a connection
// of the pool, so that it is noticed when that is closed; if that one is not
// free, what is free first.
func (s *share) acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, func(), error) {
	onLane := func(p *pgxpool.Conn) (*pgxpool.Conn, func(), error) { return p, func() { s.giveBack(p) }, nil }
	poolFirst := s.turns.Add(1)%2 == 0
	if !poolFirst {
		select {
		case p := <-s.lane:
			return onLane(p)
		default:
		}
	}
	type acquired struct {
		conn *pgxpool.Conn
		err  error
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	got := make(chan acquired, 1)
	go func() {
		p, err := acquireWithin(ctx, pool, acquireWait)
		got <- acquired{p, err}
	}()
	lane := s.lane
	if poolFirst {
		lane = nil
	}
	late := time.NewTimer(laneAfter)
	defer late.Stop()
	for {
		select {
		case a := <-got:
			if a.err != nil {
				return nil, nil, a.err
			}
			return a.conn, a.conn.Release, nil
		case <-late.C:
			lane = s.lane
		case p := <-lane:
			stop()
			if a := <-got; a.err == nil { // both at once
				a.conn.Release()
			}
			return onLane(p)
		}
	}
}

// giveBack ends a use of the lane.
func (s *share) giveBack(c *pgxpool.Conn) {
	if c.Conn().IsClosed() {
		c.Release()
		s.broken <- struct{}{}
		return
	}
	s.lane <- c
}
