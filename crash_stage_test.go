//go:build unix

package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// patience bounds what takes seconds at most; only a failure lasts so long.
const patience = 90 * time.Second

// shortSession is the session of workers that are to be killed: it is what the
// tests wait for.
const shortSession = 5 * time.Second

// stage is a test's own database, target and processes.
type stage struct {
	testing.TB
	url    string
	flows  []string
	pool   *pgxpool.Pool
	e      *engine.Engine // starts, waits and acts; it does not work
	target *target
}

// newStage makes the workflows named known to the database, so that runs can
// be started before there is a worker.
func newStage(t testing.TB, workflows ...string) *stage {
	t.Helper()
	s := &stage{TB: t, url: few(pgtest.Database(t), 5), flows: workflows}
	var defs []steps.Definition
	for _, name := range workflows {
		defs = append(defs, flows[name](&hand{}))
	}
	var err error
	if s.pool, err = pgxpool.New(context.Background(), s.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.pool.Close)
	if s.e, err = engine.New(t.Context(), s.pool, engine.Config{Workflows: defs}); err != nil {
		t.Fatal(err)
	}
	s.target = newTarget(t)
	return s
}

// few limits a pool's connections: a server has two hundred for all the tests at once.
func few(db string, n int) string {
	u, err := url.Parse(db)
	if err != nil {
		return db
	}
	q := u.Query()
	q.Set("pool_max_conns", fmt.Sprint(n))
	u.RawQuery = q.Encode()
	return u.String()
}

// spawn starts a worker; what the role leaves open is this stage's.
func (s *stage) spawn(r role) *process {
	s.Helper()
	if r.Database == "" {
		r.Database = s.url
	}
	if r.Session == 0 {
		r.Session = shortSession
	}
	if r.Flows == nil {
		r.Flows = s.flows
	}
	r.Target = s.target.server.URL
	return spawn(s, r)
}

// worker is spawn, and waits until it works.
func (s *stage) worker(r role) *process {
	s.Helper()
	return s.spawn(r).works(s)
}

// start starts a run.
func (s *stage) start(workflow, name string) engine.Run[receipt] {
	s.Helper()
	r, err := engine.Start(s.Context(), s.e, contract(workflow), order{name})
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// wait waits for a run that succeeds.
func (s *stage) wait(r engine.Run[receipt]) receipt {
	s.Helper()
	out, err := s.outcome(r)
	if err != nil {
		s.Fatalf("%v\n%s", err, s.story(r.ID))
	}
	return out
}

func (s *stage) outcome(r engine.Run[receipt]) (receipt, error) {
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	return r.Wait(ctx)
}

// succeed waits until so many runs have succeeded.
func (s *stage) succeed(n int) {
	s.Helper()
	s.until(fmt.Sprintf("%d runs have succeeded", n), func() bool {
		var got int
		s.scan("SELECT count(*) FROM pawl.run WHERE outcome = 'succeeded'", nil, &got)
		return got >= n
	})
}

// fails waits for a run that fails.
func (s *stage) fails(r engine.Run[receipt]) *engine.FailedError {
	s.Helper()
	var failed *engine.FailedError
	if _, err := s.outcome(r); !errors.As(err, &failed) {
		s.Fatalf("the run should have failed: %v\n%s", err, s.story(r.ID))
	}
	return failed
}

func (s *stage) get(id string) engine.RunInfo {
	s.Helper()
	info, err := s.e.Get(s.Context(), id)
	if err != nil {
		s.Fatal(err)
	}
	return info
}

// story is a run's history in short, for comparing and for reading: of each
// transition the step, the event, the writer and the attempt.
func (s *stage) story(id string) string {
	s.Helper()
	var lines []string
	for _, h := range s.get(id).History {
		lines = append(lines, fmt.Sprintf("%s %s by %s, attempt %d", h.Step, h.Event, h.Writer, h.Attempt))
	}
	return strings.Join(lines, "\n")
}

// expect fails unless the story is this, but for questions that have to be
// asked again, since how many depends on the clock.
func (s *stage) expect(id string, lines ...string) {
	s.Helper()
	var told []string
	for line := range strings.Lines(s.story(id)) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.Contains(line, " unknown by ") && !(len(told) > 0 && told[len(told)-1] == line && strings.Contains(line, " asking by ")) {
			told = append(told, line)
		}
	}
	if !slices.Equal(told, lines) {
		s.Errorf("the history is\n%s\nwant\n%s", s.story(id), strings.Join(lines, "\n"))
	}
}

// until polls a condition: it is other processes that make it true.
func (s *stage) until(what string, ok func() bool) {
	s.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	s.Fatalf("not within %v: %s", patience, what)
}

// scan reads one row.
func (s *stage) scan(sql string, args []any, dest ...any) {
	s.Helper()
	if err := s.pool.QueryRow(s.Context(), sql, args...).Scan(dest...); err != nil {
		s.Fatalf("%s: %v", sql, err)
	}
}

// rows is all that a run consists of, to the last bit, but for its evidence.
func (s *stage) rows(id string) (all string) {
	s.Helper()
	s.scan(`SELECT json_build_object(
		'run', (SELECT json_agg(r) FROM pawl.run r WHERE r.id = $1),
		'job', (SELECT json_agg(j ORDER BY j.id) FROM pawl.job j WHERE j.run_id = $1),
		'cursor', (SELECT json_agg(c ORDER BY c.job) FROM pawl.cursor c JOIN pawl.job j ON j.id = c.job WHERE j.run_id = $1),
		'history', (SELECT json_agg(h ORDER BY h.job, h.token) FROM pawl.history h WHERE h.run_id = $1))::text`, []any{id}, &all)
	return all
}

// owner is the name of the worker whose lease a history row closed.
func (s *stage) owner(id string) (name string) {
	s.Helper()
	s.scan("SELECT coalesce((SELECT name FROM pawl.session WHERE id = $1), '')", []any{id}, &name)
	return name
}
