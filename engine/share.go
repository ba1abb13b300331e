package engine

import (
	"context"
	"runtime"
	"sync"
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
// leases are renewed on it when users' code has taken all others for so long.
// Whether it lives is looked at now and then. A smaller pool has none.
const (
	minPoolLane = 4
	laneAfter   = 250 * time.Millisecond
	laneLook    = time.Second
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
		if s.lookAfterLane(ctx) {
			continue
		}
		select { // when nobody uses it any more
		case <-s.broken:
		case c := <-s.lane:
			c.Release()
		}
		return
	}
}

// lookAfterLane returns true when the lane is broken, false when ctx has ended. A
// look costs no round trip.
func (s *share) lookAfterLane(ctx context.Context) (broken bool) {
	t := time.NewTicker(laneLook)
	defer t.Stop()
	for {
		select {
		case <-s.broken:
			return true
		case <-ctx.Done():
			return false
		case <-t.C:
		}
		select {
		case c := <-s.lane:
			//lint:ignore SA1019 a closed line is all that is looked for, and a ping would be a round trip each time
			if err := c.Conn().PgConn().CheckConn(); err != nil || c.Conn().IsClosed() {
				timed(context.Background(), c.Conn().Close)
			}
			s.giveBack(c)
		default: // in use
		}
	}
}

// acquire takes a connection of the pool, or after a while what is free first:
// one of the pool or the lane.
func (s *share) acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, func(), error) {
	onLane := func(p *pgxpool.Conn) (*pgxpool.Conn, func(), error) { return p, func() { s.giveBack(p) }, nil }
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
	var lane chan *pgxpool.Conn
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
