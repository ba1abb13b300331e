package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// cutBed is an engine whose every request passes a proxy, and a pool past it.
type cutBed struct {
	t      *testing.T
	proxy  *pgproxy.Proxy
	direct *pgxpool.Pool
	e      *engine.Engine
	asked  atomic.Int64 // requests that the cuts are meant for
}

func newCutBed(t *testing.T, defs ...steps.Definition) *cutBed {
	t.Helper()
	ctx := context.Background()
	b := &cutBed{t: t, direct: pgtest.Pool(t)}
	var err error
	if b.proxy, err = pgproxy.New(pgtest.Server(t).Addr()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.proxy.Close)
	pool, err := pgxpool.New(ctx, b.proxy.URL(b.direct.Config().ConnString()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	// A long session: what is cut here are the requests named, and nobody else is to step in.
	if b.e, err = engine.New(ctx, pool, engine.Config{Workflows: defs, Session: 5 * time.Minute, NoListen: true}); err != nil {
		t.Fatal(err)
	}
	return b
}

// cut meets requests that say the text: the first of every so many with the
// action, so that what repeats it is let through.
func (b *cutBed) cut(text string, every int64, action pgproxy.Action) {
	b.proxy.OnExecute(func(sql string) pgproxy.Action {
		if (sql == text || strings.HasPrefix(sql, "-- name: "+text+" ")) && (b.asked.Add(1)-1)%every == 0 {
			return action
		}
		return pgproxy.Pass
	})
}

// Who writes again is let through the second time; who reads what became of
// the first writes no second time.
const (
	cutEach  = 1
	cutOther = 2
	cutOnce  = 1 << 40
)

// unlessDone is for writers who read first.
func unlessDone(after bool) int64 {
	if after {
		return cutEach
	}
	return cutOther
}

// finish waits for the run's output.
func (b *cutBed) finish(r engine.Run[int]) int {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	out, err := r.Wait(ctx)
	if err != nil {
		info, _ := b.e.Get(context.Background(), r.ID)
		b.t.Fatalf("%v: %+v", err, info)
	}
	return out
}

// sequence checks that the history is the steps' completions, one row each and
// no other, by one worker that carried on under its own lease.
func (b *cutBed) sequence(r engine.Run[int], steps int) {
	b.t.Helper()
	info, err := b.e.Get(context.Background(), r.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	if len(info.History) != steps {
		b.t.Errorf("%d rows of history for %d steps", len(info.History), steps)
	}
	for i, h := range info.History {
		if h.Event != "completed" || h.Attempt != 1 || h.Token != int64(i+2) || h.Owner != info.History[0].Owner {
			b.t.Errorf("row %d: %+v", i, h)
		}
	}
}

func (b *cutBed) fired(action pgproxy.Action, want int) {
	b.t.Helper()
	if n := b.proxy.Fired(action); n != want {
		b.t.Errorf("%d requests were cut, not %d", n, want)
	}
}
