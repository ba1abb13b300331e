package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// The pool is closed under load: with a listener, waiters, kept connections,
// the lane and transactional steps.
func TestFaultCloseUnderLoad(t *testing.T) {
	url := pgtest.Database(t)
	leaks := goleak.IgnoreCurrent()
	pool, err := pgxpool.NewWithConfig(context.Background(), func() *pgxpool.Config {
		c, _ := pgxpool.ParseConfig(url)
		c.MaxConns = 10
		return c
	}())
	if err != nil {
		t.Fatal(err)
	}
	w := steps.Declare[int, int]("load")
	tx := steps.NewTx("tx", func(ctx context.Context, tx pgx.Tx, n int) (int, error) { return n, nil })
	p := steps.New("p", same)
	def := w.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] { return p.Do(f, tx.Do(f, p2(f, in))) })
	var es []*engine.Engine
	worked := make(chan error, 2)
	for range 2 {
		e := effEngine(t, pool, engine.Config{Session: time.Second, Drain: 2 * time.Second, Workflows: []steps.Definition{def}})
		es = append(es, e)
		go func() { worked <- e.Work(context.Background()) }()
	}
	runs, err := engine.StartMany(context.Background(), es[0], w, make([]int, 3000))
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 100)
	for _, r := range runs[len(runs)-100:] {
		go func() { _, err := r.Wait(context.Background()); waited <- err }()
	}
	time.Sleep(700 * time.Millisecond)
	began := time.Now()
	pool.Close()
	t.Log("closed after ", time.Since(began))
	for range 2 {
		t.Log(effSignal(t, "Work", worked), time.Since(began))
	}
	for range 100 {
		effSignal(t, "Wait", waited)
	}
	if err := goleak.Find(leaks); err != nil {
		t.Error(err)
	}
}

func p2(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] { return steps.New("p2", same).Do(f, in) }
