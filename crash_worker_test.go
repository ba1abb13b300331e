//go:build unix

package pawl_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/fault"
	"github.com/pawlworks/pawl/internal/otelsetup"
	"github.com/pawlworks/pawl/internal/plan"
	"github.com/pawlworks/pawl/steps"
)

// workerVariable makes the test binary a worker: its value is a role in JSON.
const workerVariable = "PAWL_TEST_CRASH_WORKER"

// role is what a worker process is told.
type role struct {
	Name     string
	Database string // its URL
	Target   string // the URL of the world outside
	Flows    []string
	Queues   []string
	Slots    int
	Session  time.Duration
	NoListen bool
	Drain    time.Duration
	Kill     string   // the label at which it kills itself,
	KillAt   int32    // when it passes it so often; 0 is the first time
	Hold     []string // the labels at which it waits for the target's leave
	Spans    string   // the file to which it writes its spans,
	Env      []string // or the variables that say where they go
}

// beWorker works until it is killed, gets SIGTERM or its standard input ends,
// which it does with whoever started this process.
func beWorker(spec string) int {
	var r role
	if err := json.Unmarshal([]byte(spec), &r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := r.work(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (r role) work() error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	pool, err := pgxpool.New(ctx, r.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	untraced, err := r.traces(ctx)
	if err != nil {
		return err
	}
	defer untraced()
	h := &hand{worker: r.Name, target: r.Target}
	var defs []steps.Definition
	for _, name := range r.Flows {
		defs = append(defs, flows[name](h))
	}
	e, err := engine.New(ctx, pool, engine.Config{Workflows: defs, Name: r.Name, Queues: r.Queues, Slots: r.Slots, Session: r.Session,
		Drain: r.Drain, NoListen: r.NoListen, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	var passed atomic.Int32
	fault.At = func(label string) {
		if label == r.Kill && passed.Add(1) >= r.KillAt {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // it takes a moment, in which nothing more is to happen
		}
		if slices.Contains(r.Hold, label) {
			_ = h.send(context.Background(), "at/"+label, "", nil)
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	go r.tellReady(ctx, pool)
	context.AfterFunc(ctx, func() { fmt.Println("stopping") })
	return e.Work(ctx)
}

// traces sets the global provider, as an application does.
func (r role) traces(ctx context.Context) (stop func(), err error) {
	if r.Spans == "" {
		return otelsetup.Start(ctx)
	}
	p, err := fileProvider(r.Spans)
	if err != nil {
		return nil, err
	}
	otel.SetTracerProvider(p)
	return func() { _ = p.Shutdown(context.WithoutCancel(ctx)) }, nil
}

// tellReady says so once the worker has its session.
func (r role) tellReady(ctx context.Context, pool *pgxpool.Pool) {
	for open := false; !open && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		_ = pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pawl.session WHERE name = $1)", r.Name).Scan(&open)
	}
	fmt.Println("ready")
}

// hand is how steps reach the world outside.
type hand struct{ worker, target string }

// keyHeader is not Idempotency-Key: a request that has that one, net/http
// itself sends again when the connection breaks.
const keyHeader = "Pawl-Key"

// client keeps as many connections as a worker has slots.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

func (h *hand) request(ctx context.Context, method, path, note string) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, method, h.target+"/"+path, nil)
	if err != nil {
		return nil, err
	}
	q.Header.Set("Pawl-Worker", h.worker)
	q.Header.Set("Pawl-Note", note)
	if a := plan.FromContext(ctx); a != nil {
		q.Header.Set("Pawl-Attempt", strconv.Itoa(a.Number))
		q.Header.Set(keyHeader, a.Key())
	}
	return client.Do(q)
}

var (
	errNotFound = errors.New("the target knows nothing of it")
	errEnough   = errors.New("the target has had enough")
	errDeclined = errors.New("the target declines")
)

func read(r *http.Response, err error, out any) error {
	if err != nil {
		return err
	}
	defer r.Body.Close()
	switch {
	case r.StatusCode == http.StatusNotFound:
		return errNotFound
	case r.StatusCode == http.StatusGone:
		return errEnough
	case r.StatusCode == http.StatusPaymentRequired:
		return errDeclined
	case r.StatusCode != http.StatusOK:
		return fmt.Errorf("the target answers %s", r.Status)
	case out == nil:
		_, err = io.Copy(io.Discard, r.Body)
		return err
	}
	return json.NewDecoder(r.Body).Decode(out)
}

func (h *hand) send(ctx context.Context, path, note string, out any) error {
	r, err := h.request(ctx, http.MethodPost, path, note)
	return read(r, err, out)
}

// do has a step's effect.
func (h *hand) do(ctx context.Context, step string, o order) (r receipt, err error) {
	return r, h.send(ctx, "effects/"+step+"/"+o.Name, "", &r)
}

func (h *hand) note(ctx context.Context, step string, o order, note string) {
	_ = h.send(context.WithoutCancel(ctx), "notes/"+step+"/"+o.Name, note, nil)
}

// find looks an effect up.
func (h *hand) find(ctx context.Context, _ order) (steps.Verdict[receipt], error) {
	var r receipt
	answer, err := h.request(ctx, http.MethodGet, "effects?key="+steps.IdempotencyKey(ctx), "")
	switch err = read(answer, err, &r); {
	case err == errNotFound:
		return steps.NeverHappened[receipt](), nil
	case err != nil:
		return steps.StillUnknown[receipt](0), err
	}
	return steps.Happened(r), nil
}
