package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// planted is a database with trouble in it, to be read from the terminal alone.
type planted struct {
	t    *testing.T
	url  string
	pool *pgxpool.Pool
	e    *engine.Engine
	runs map[string]string // their ids
}

var (
	orders = steps.Declare[string, string]("order")
	mails  = steps.Declare[string, string]("mail")
	later  = steps.Declare[string, string]("later")
)

// Names and errors that would like to do something to a terminal.
const (
	evilCode = "EVIL\x1b[2J"
	evilText = "declined\x1b]0;owned\x07 by\u202ethe bank\r\nWELL\u009b31m"
	evilKey  = "key\x1b[31m\u202e of evil"
)

// body does what its input says.
func body(_ context.Context, what string) (string, error) {
	switch what {
	case "declined":
		return "", steps.Permanent("DECLINED", errors.New("the bank says no"))
	case "evil":
		return "", steps.Permanent(evilCode, errors.New(evilText))
	case "provider down":
		return "", steps.RetryAfter(time.Hour, errors.New("connection refused"))
	case "lost":
		return "", errors.New("no answer came")
	}
	return "done: " + what, nil
}

func ask(context.Context, string) (steps.Verdict[string], error) {
	return steps.StillUnknown[string](time.Hour), nil
}

func orderSteps() steps.Definition {
	return orders.Of(steps.New("charge", body, steps.Owner("payments")))
}

// mailSteps is an effect that a person resolves, laterSteps one that is looked up.
func mailSteps() steps.Definition {
	return mails.Of(steps.New("send", body, steps.Manual(), steps.Owner("postmaster")))
}

func laterSteps() steps.Definition {
	return later.Of(steps.New("transfer", body, steps.MaxRuntime(2*time.Minute), steps.Retry{Attempts: 8}).LookUp(ask, 15*time.Minute))
}

func plant(t *testing.T) *planted {
	t.Helper()
	p := &planted{t: t, url: pgtest.Database(t), runs: map[string]string{}}
	var err error
	if p.pool, err = pgxpool.New(context.Background(), p.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.pool.Close)
	p.e = p.engine(engine.Config{Name: "worker-1", Workflows: []steps.Definition{orderSteps(), mailSteps(), laterSteps()}})
	return p
}

func (p *planted) engine(c engine.Config) *engine.Engine {
	p.t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	e, err := engine.New(context.Background(), p.pool, c)
	if err != nil {
		p.t.Fatal(err)
	}
	return e
}

// work works until the test ends or the function is called.
func (p *planted) work(e *engine.Engine) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Work(ctx) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			if err := <-done; err != nil {
				p.t.Error(err)
			}
		}
	}
	p.t.Cleanup(stop)
	return stop
}

// start starts a run, and remembers its id by its input.
func (p *planted) start(w steps.Workflow[string, string], what string, opts ...engine.StartOption) string {
	p.t.Helper()
	r, err := engine.Start(context.Background(), p.e, w, what, opts...)
	if err != nil {
		p.t.Fatal(err)
	}
	p.runs[what] = r.ID
	return r.ID
}

// until waits for a run's state.
func (p *planted) until(id string, state engine.State) engine.RunInfo {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		i, err := p.e.Get(context.Background(), id)
		if err != nil {
			p.t.Fatal(err)
		}
		if i.State == state {
			return i
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("run %s is %s, not %s", id, i.State, state)
		}
	}
}

func (p *planted) exec(sql string, args ...any) {
	p.t.Helper()
	if _, err := p.pool.Exec(context.Background(), sql, args...); err != nil {
		p.t.Fatal(err)
	}
}

// trouble plants what a worker makes of bad inputs, and stops it.
func (p *planted) trouble() {
	stop := p.work(p.e)
	p.until(p.start(orders, "declined", engine.Key("order-1"), engine.Tags("vip", "eu")), engine.Failed)
	p.until(p.start(orders, "evil", engine.Key("order-2")), engine.Failed)
	p.until(p.start(orders, "provider down", engine.Key("order-3")), engine.Scheduled)
	p.until(p.start(orders, "fine", engine.Key("order-4"), engine.Tags("vip")), engine.Succeeded)
	p.until(p.start(mails, "lost", engine.Key("mail-1")), engine.Uncertain)
	r, err := engine.Start(context.Background(), p.e, later, "lost")
	if err != nil {
		p.t.Fatal(err)
	}
	p.runs["asked"] = r.ID
	for p.until(r.ID, engine.Uncertain).Jobs[0].Questions == 0 {
	}
	stop()
}

// snapshot is held until the test ends or the function is called.
func (p *planted) snapshot(application string) (drop func()) {
	config, err := pgx.ParseConfig(p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	config.RuntimeParams["application_name"] = application
	conn, err := pgx.ConnectConfig(context.Background(), config)
	if err != nil {
		p.t.Fatal(err)
	}
	drop = func() { _ = conn.Close(context.Background()) }
	p.t.Cleanup(drop)
	for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM pawl.meta"} {
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			p.t.Fatal(err)
		}
	}
	return drop
}

// hours shifts pawl's clock, and so everybody's idea of how long things have lasted.
func (p *planted) hours(n string) {
	for _, f := range [][2]string{{"clock", "clock_timestamp"}, {"now", "now"}} {
		p.exec("CREATE OR REPLACE FUNCTION pawl." + f[0] + "() RETURNS timestamptz LANGUAGE sql " + map[string]string{"clock": "VOLATILE", "now": "STABLE"}[f[0]] +
			" AS 'SELECT pg_catalog." + f[1] + "() + interval ''" + n + "'''")
	}
}
