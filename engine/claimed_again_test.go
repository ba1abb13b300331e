package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/steps"
)

// TestCutAndClaimedAgain: the answer to a write that leaves the job to whoever
// comes is lost, and before it is asked for again the same worker has claimed
// the job. That lease is the claim's: the write's own place is not gone on from.
func TestCutAndClaimedAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	var log envLog
	var calls, transitions, looked atomic.Int64
	again, release := make(chan struct{}), make(chan struct{})
	let, free := sync.OnceFunc(func() { close(again) }), sync.OnceFunc(func() { close(release) })
	def := cutFlow.Of(steps.New("twice", func(context.Context, int) (int, error) {
		if calls.Add(1) == 1 {
			return 0, steps.Transient(errors.New("again"))
		}
		<-release
		return 7, nil
	}, steps.Retry{Delay: time.Millisecond}))
	b := newCutBed(t, def)
	b.proxy.OnExecute(func(sql string) pgproxy.Action {
		switch {
		case effStatement(sql, "Transition") && transitions.Add(1) == 1:
			return pgproxy.CutAfter
		case effStatement(sql, "Transition"):
			<-again
		case effStatement(sql, "ReadJob"):
			looked.Add(1)
		}
		return pgproxy.Pass
	})
	// It listens, so that the test can wake it.
	e := effEngine(t, effPool(t, b.proxy.URL(b.direct.Config().ConnString())), engine.Config{Workflows: []steps.Definition{def}, Session: 5 * time.Minute, Logger: log.logger()})
	stop := work(t, e)
	t.Cleanup(func() { let(); free() }) // before the worker is waited for
	r := b.start()
	effUntil(t, "it is claimed again", func() bool {
		effHurry(t, b.direct, r.ID)
		return effScan[int](t, b.direct, "SELECT count(*) FROM pawl.job WHERE state = 'running' AND token = 3") == 1 && calls.Load() == 2
	})
	let()
	effUntil(t, "it is looked up", func() bool { return looked.Load() > 0 })
	free()
	if out := b.finish(r); out != 7 {
		t.Errorf("got %d", out)
	}
	stop()
	if calls.Load() != 2 || log.said("after its lease was lost") != 0 {
		t.Errorf("%d calls\n%s", calls.Load(), log.last(20))
	}
	if info, err := b.e.Get(ctx, r.ID); err != nil || fmt.Sprint(effEvents(info)) != "[retried completed]" {
		t.Errorf("%+v, %v", info.History, err)
	}
	b.fired(pgproxy.CutAfter, 1)
}

// TestCutCursorAndClaimedAgain: a cursor's write did not arrive, and before the
// worker looks what became of it the job was taken back and the same worker has
// claimed it again and moved the cursor. The number is the next one; the write is
// another's all the same, and the first attempt is told that its lease is lost.
func TestCutCursorAndClaimedAgain(t *testing.T) {
	t.Parallel()
	var bodies, saves, reads atomic.Int64
	look, release, told := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	let, free := sync.OnceFunc(func() { close(look) }), sync.OnceFunc(func() { close(release) })
	def := cutFlow.Of(steps.NewLong("long", func(ctx context.Context, _ int, cur *steps.Cursor[string]) (int, error) {
		if bodies.Add(1) == 1 {
			err := cur.Commit(context.WithoutCancel(ctx), "first")
			told <- err
			return 1, err
		}
		if err := cur.Commit(ctx, "second"); err != nil {
			return 2, err
		}
		<-release
		return 2, nil
	}))
	b := newCutBed(t, def)
	b.proxy.OnExecute(func(sql string) pgproxy.Action {
		switch {
		case effStatement(sql, "SaveCursor") && saves.Add(1) == 1:
			return pgproxy.CutBefore
		case effStatement(sql, "ReadJob") && reads.Add(1) == 1:
			<-look
		}
		return pgproxy.Pass
	})
	e := effEngine(t, effPool(t, b.proxy.URL(b.direct.Config().ConnString())), engine.Config{Workflows: []steps.Definition{def}, Session: 5 * time.Minute})
	work(t, e)
	t.Cleanup(func() { let(); free() }) // before the worker is waited for
	r := b.start()
	effUntil(t, "it is about to look", func() bool { return reads.Load() > 0 })
	b.takeBack()
	effUntil(t, "the second attempt has moved the cursor", func() bool {
		effHurry(t, b.direct, r.ID)
		return effScan[int](t, b.direct, "SELECT count(*) FROM pawl.job WHERE state = 'running' AND token = 3 AND cursor_seq = 1") == 1
	})
	let()
	if err := effSignal(t, "what the first attempt is told", told); !errors.Is(err, steps.ErrLeaseLost) {
		t.Errorf("it is told %v", err)
	}
	if v := effScan[string](t, b.direct, "SELECT convert_from(value, 'UTF8') FROM pawl.cursor"); v != `"second"` {
		t.Errorf("the cursor is %s", v)
	}
	free()
	if out := b.finish(r); out != 2 {
		t.Errorf("got %d", out)
	}
	b.fired(pgproxy.CutBefore, 1)
}
