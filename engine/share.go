package engine

import (
	"runtime"
	"sync"
	"weak"

	"github.com/jackc/pgx/v5/pgxpool"
)

// share is what the engines of a process that use the same pool have in
// common, so that any number of them leave connections free for the writers
// and keepers of all: one listener, and one limit on the transactions that are
// open around users' code.
type share struct {
	txs chan struct{}

	mu        sync.Mutex
	listeners map[string]*listener // by ListenDSN
}

// Connections that a pool keeps free of users' transactions: for the
// committer, the keeper and the listener.
const keptFree = 3

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
		s = &share{txs: make(chan struct{}, max(1, int(pool.Config().MaxConns)-keptFree)), listeners: map[string]*listener{}}
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
