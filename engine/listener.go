package engine

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// listener hears wake-ups on one connection, for all engines of a process that
// use the same pool, while anybody listens.
//
// Invariants: after every (re-)LISTEN, once it is active, everybody is told to
// poll once; a connection that is deaf is noticed by its heartbeat; whatever
// fails here, polling goes on.
type listener struct {
	dsn    string // a connection of its own; else one of the pool's
	silent bool   // nothing is listened to, only told
	mu     sync.Mutex
	subs   map[int]func(kind string)
	next   int
	cancel context.CancelFunc
	done   chan struct{}

	hears atomic.Bool  // just now
	heard atomic.Bool  // since it failed
	lost  atomic.Int64 // when it failed, or began, in Unix nanoseconds; 0: it hears, or nobody listens
}

const (
	listenHeartbeat = 30 * time.Second
	listenTimeout   = 5 * time.Second
	minPoolToListen = 3 // a smaller pool needs all its connections: poll only
)

// subscribe calls fn for every wake-up, with "" for "anything may have
// happened: poll". fn must not block. The function returned ends it, and
// returns when nothing of the listener runs any more if it was the last.
func (e *Engine) subscribe(fn func(kind string)) (unsubscribe func()) {
	l := e.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	id := l.next
	l.next++
	l.subs[id] = fn
	if len(l.subs) == 1 && !l.silent {
		ctx, cancel := context.WithCancel(context.Background())
		before := l.done
		done := make(chan struct{})
		l.cancel, l.done = cancel, done
		go func() {
			defer close(done)
			if before != nil {
				<-before // the last one's connection first
			}
			l.run(ctx, e.pool, e.log)
		}()
	}
	return sync.OnceFunc(func() {
		l.mu.Lock()
		delete(l.subs, id)
		var done chan struct{}
		if len(l.subs) == 0 && l.cancel != nil {
			l.cancel()
			l.cancel, done = nil, l.done
		}
		l.mu.Unlock()
		if done != nil {
			<-done
		}
	})
}

func (l *listener) tell(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, fn := range l.subs {
		fn(kind)
	}
}

func (l *listener) run(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) {
	l.lost.Store(time.Now().UnixNano())
	defer l.lost.Store(0)
	for failed := false; ctx.Err() == nil; {
		switch err := l.listen(ctx, pool); {
		case err == nil || ctx.Err() != nil:
		case failed && !l.heard.Swap(false): // once for each time that it goes
			log.Debug("pawl: listening for wake-ups; polling meanwhile", "error", err)
		default:
			log.Warn("pawl: the listener has no connection; polling until it has one again", "error", err)
			failed = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(float64(time.Second) * (0.1 + rand.Float64()))): // not all processes at once
		}
	}
}

// listen listens on one connection until that fails.
func (l *listener) listen(ctx context.Context, pool *pgxpool.Pool) error {
	conn, release, err := l.connect(ctx, pool)
	if conn == nil || err != nil {
		return err
	}
	defer release()
	if err := timed(ctx, func(ctx context.Context) error { _, err := conn.Exec(ctx, "LISTEN pawl"); return err }); err != nil {
		return err
	}
	l.hears.Store(true)
	l.lost.Store(0)
	l.heard.Store(true)
	defer func() { l.hears.Store(false); l.lost.CompareAndSwap(0, time.Now().UnixNano()) }()
	l.tell("")
	for {
		wait, cancel := context.WithTimeout(ctx, listenHeartbeat)
		n, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			l.tell(n.Payload)
		case ctx.Err() != nil:
			return nil
		case wait.Err() != nil: // nothing came: is the line dead, or only quiet?
			if err := timed(ctx, conn.Ping); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// deaf is since when it hears nothing, although it should.
func (l *listener) deaf() time.Time {
	if at := l.lost.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

func timed(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	return fn(ctx)
}

// connect takes a connection of its own if there is a ListenDSN, else one of
// the pool's, if that can spare it. A nil connection: poll only.
func (l *listener) connect(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, func(), error) {
	if l.dsn != "" {
		c, err := pgx.Connect(ctx, l.dsn)
		if err != nil {
			return nil, nil, err
		}
		return c, func() { timed(context.Background(), c.Close) }, nil
	}
	if pool.Config().MaxConns < minPoolToListen {
		l.lost.Store(0) // by intent
		<-ctx.Done()
		return nil, nil, nil
	}
	c, err := pool.Acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	// Closed rather than given back: the next user of it must not be a listener.
	return c.Conn(), func() { timed(context.Background(), c.Conn().Close); c.Release() }, nil
}
