//go:build unix

package pawl_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/fault"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/steps"
)

const chunkCount = 5

func init() {
	// A lease that is not the default is asked for before the body is called:
	// these pass every point too.
	tx := func(name string, lease time.Duration, opts ...steps.Option) {
		flow(name, func(h *hand) steps.Step[order, receipt] {
			return steps.NewTx("charge", h.books, steps.Lease(lease))
		}, opts...)
	}
	for _, label := range fault.Labels {
		tx("tx-"+label, 30*time.Second, steps.Queue("tx-"+label))
	}
	tx("tx", 30*time.Second)
	tx("tx-short", 3*time.Second)
	for _, c := range chunkDeaths() {
		flows[c.name()] = func(h *hand) steps.Definition {
			return contract(c.name()).Of(steps.NewLong("chunks", h.chunks), steps.Queue(c.name()))
		}
	}
}

// books writes into the shop's own table. Nothing there keeps it from being
// written twice.
func (h *hand) books(ctx context.Context, tx pgx.Tx, o order) (receipt, error) {
	return receipt{o.Name, 1}, h.book(ctx, tx, o, 0)
}

func (h *hand) book(ctx context.Context, tx pgx.Tx, o order, place int) error {
	_, err := tx.Exec(ctx, "INSERT INTO booking VALUES ($1, $2, $3)", o.Name, place, h.worker)
	return err
}

// chunks books one chunk after another, each with the cursor behind it.
func (h *hand) chunks(ctx context.Context, o order, cur *steps.Cursor[int]) (receipt, error) {
	for n := cur.At(); n < chunkCount; n++ {
		if err := cur.CommitTx(ctx, n+1, func(tx pgx.Tx) error { return h.book(ctx, tx, o, n) }); err != nil {
			return receipt{}, err
		}
	}
	return receipt{o.Name, chunkCount}, nil
}

// newShop is a stage whose database has a table of the user's.
func newShop(t *testing.T, workflows ...string) *stage {
	s := newStage(t, workflows...)
	if _, err := s.pool.Exec(t.Context(), "CREATE TABLE booking (name text, place int, worker text)"); err != nil {
		t.Fatal(err)
	}
	return s
}

// booked is the places that are booked for an order, and by whom.
func (s *stage) booked(name string) (places []int, workers []string) {
	s.Helper()
	s.scan("SELECT coalesce(array_agg(place ORDER BY place), '{}'), coalesce(array_agg(DISTINCT worker), '{}') FROM booking WHERE name = $1",
		[]any{name}, &places, &workers)
	return places, workers
}

// crashTransactions: a process dies at a point of a transaction around a
// user's writes, and they are there with the completion or the cursor, or
// neither is.
func crashTransactions(t *testing.T) {
	t.Run("step", func(t *testing.T) { t.Parallel(); crashTxStep(t) })
	t.Run("CommitTx", func(t *testing.T) { t.Parallel(); crashCommitTx(t) })
	t.Run("commit_arrives_late", func(t *testing.T) { t.Parallel(); crashLateCommit(t) })
	t.Run("commit_never_arrives", func(t *testing.T) { t.Parallel(); crashNoCommit(t) })
}

func crashTxStep(t *testing.T) {
	var known []string
	for _, label := range fault.Labels {
		known = append(known, "tx-"+label)
	}
	s := newShop(t, known...)
	runs, doomed := map[string]engine.Run[receipt]{}, map[string]*process{}
	for _, label := range fault.Labels {
		runs[label] = s.start("tx-"+label, label)
		doomed[label] = s.spawn(role{Name: label, Queues: []string{"tx-" + label}, Kill: label})
	}
	for _, p := range doomed {
		p.died(t)
	}
	for _, label := range fault.Labels {
		places, _ := s.booked(label)
		completed := slices.ContainsFunc(s.get(runs[label].ID).History, func(h engine.Transition) bool { return h.Event == "completed" })
		if there := label == fault.AfterCommit; (len(places) == 1) != there || completed != there {
			t.Errorf("killed at %s: %d rows are booked; completed: %v", label, len(places), completed)
		}
	}
	s.worker(role{Name: "survivor"})
	for _, label := range fault.Labels {
		by := "survivor"
		story := retried
		switch label {
		case fault.BeforeClaim:
			story = storyOfPoint[label]
		case fault.AfterCommit:
			by, story = label, storyOfPoint[label]
		}
		if out := s.wait(runs[label]); out != (receipt{label, 1}) {
			t.Errorf("%s: the run gives %+v", label, out)
		}
		s.expect(runs[label].ID, story...)
		if places, workers := s.booked(label); len(places) != 1 || workers[0] != by {
			t.Errorf("%s: booked at %v by %v, want once by %s", label, places, workers, by)
		}
	}
}

// chunkDeath is a kill at a point of a long step's commit: those of its chunks,
// the first being 1, and behind them that of its completion.
type chunkDeath struct {
	label  string
	commit int
}

func chunkDeaths() (all []chunkDeath) {
	for _, label := range []string{fault.BeforeCommit, fault.AfterCommit} {
		for _, commit := range []int{1, 3, chunkCount + 1} {
			all = append(all, chunkDeath{label, commit})
		}
	}
	return all
}

func (c chunkDeath) name() string { return fmt.Sprintf("chunks-%s-%d", c.label, c.commit) }

// durable is how many commits have taken place.
func (c chunkDeath) durable() int {
	if c.label == fault.BeforeCommit {
		return c.commit - 1
	}
	return c.commit
}

func crashCommitTx(t *testing.T) {
	var known []string
	for _, c := range chunkDeaths() {
		known = append(known, c.name())
	}
	s := newShop(t, known...)
	runs, doomed := map[string]engine.Run[receipt]{}, map[string]*process{}
	for _, c := range chunkDeaths() {
		runs[c.name()] = s.start(c.name(), c.name())
		doomed[c.name()] = s.spawn(role{Name: c.name(), Queues: []string{c.name()}, Kill: c.label, KillAt: int32(c.commit)})
	}
	for _, p := range doomed {
		p.died(t)
	}
	for _, c := range chunkDeaths() {
		var cursor, ended int
		s.scan(`SELECT coalesce((SELECT convert_from(c.value, 'UTF8')::int FROM pawl.cursor c JOIN pawl.job j ON j.id = c.job AND j.cursor_seq = c.seq
			WHERE j.run_id = $1), 0), (SELECT count(*) FROM pawl.run WHERE id = $1 AND outcome = 'succeeded')`, []any{runs[c.name()].ID}, &cursor, &ended)
		places, _ := s.booked(c.name())
		if c.durable() > chunkCount { // its cursor is gone with it
			if ended != 1 || len(places) != chunkCount {
				t.Errorf("%s: %d chunks are booked; ended: %d", c.name(), len(places), ended)
			}
		} else if ended != 0 || cursor != c.durable() || len(places) != c.durable() {
			t.Errorf("%s: %d chunks are booked and the cursor is at %d, want %d; ended: %d", c.name(), len(places), cursor, c.durable(), ended)
		}
	}
	s.worker(role{Name: "survivor"})
	for _, c := range chunkDeaths() {
		if out := s.wait(runs[c.name()]); out != (receipt{c.name(), chunkCount}) {
			t.Errorf("%s: the run gives %+v", c.name(), out)
		}
		if c.durable() > chunkCount {
			s.expect(runs[c.name()].ID, "chunks completed by worker, attempt 1")
		} else {
			s.expect(runs[c.name()].ID, "chunks lapsed by recovery, attempt 1", "chunks completed by worker, attempt 2")
		}
		if places, _ := s.booked(c.name()); !slices.Equal(places, []int{0, 1, 2, 3, 4}) {
			t.Errorf("%s: the chunks %v are booked", c.name(), places)
		}
		var mine int
		s.scan("SELECT count(*) FROM booking WHERE name = $1 AND worker = $1", []any{c.name()}, &mine)
		if want := min(c.durable(), chunkCount); mine != want {
			t.Errorf("%s: %d chunks are of the worker that was killed, want %d", c.name(), mine, want)
		}
	}
}

// killedAtCommit kills a worker whose COMMIT is on its way.
func (s *stage) killedAtCommit(workflow string) (engine.Run[receipt], *pgproxy.Proxy) {
	s.Helper()
	proxy := proxyOf(s)
	doomed := s.worker(role{Name: "doomed", Database: proxy.URL(s.url)})
	proxy.OnExecute(func(sql string) pgproxy.Action {
		if sql != "commit" {
			return pgproxy.Pass
		}
		doomed.pause(s) // so that it can't react to what follows
		return pgproxy.Stall
	})
	r := s.start(workflow, "x")
	s.until("the commit is sent", func() bool { return proxy.Fired(pgproxy.Stall) == 1 })
	doomed.kill(s)
	s.worker(role{Name: "survivor"})
	return r, proxy
}

// A COMMIT that is on its way when its worker dies arrives after the session
// has lapsed: nobody could take the job over before, and it counts.
func crashLateCommit(t *testing.T) {
	s := newShop(t, "tx")
	r, proxy := s.killedAtCommit("tx")
	s.until("the session has lapsed", func() (closed bool) {
		s.scan("SELECT closed_at IS NOT NULL FROM pawl.session WHERE name = 'doomed'", nil, &closed)
		return closed
	})
	s.wait(s.start("tx", "y")) // the survivor has work, and takes what it can
	if info := s.get(r.ID); info.State != engine.Running || len(info.History) != 0 {
		t.Errorf("while the commit is on its way: %s, %+v", info.State, info.History)
	}
	proxy.Release()
	if out := s.wait(r); out != (receipt{"x", 1}) {
		t.Errorf("the run gives %+v", out)
	}
	s.expect(r.ID, storyOfPoint[fault.AfterCommit]...)
	if places, workers := s.booked("x"); len(places) != 1 || workers[0] != "doomed" {
		t.Errorf("booked at %v by %v", places, workers)
	}
}

// One that does not arrive is waited for no longer than the lease, by the
// database itself; when it comes after all it commits nothing.
func crashNoCommit(t *testing.T) {
	s := newShop(t, "tx-short")
	r, proxy := s.killedAtCommit("tx-short")
	if out := s.wait(r); out != (receipt{"x", 1}) {
		t.Errorf("the run gives %+v", out)
	}
	proxy.Release()
	s.wait(s.start("tx-short", "y"))
	// On a loaded machine the survivor's lease may end too: more attempts, one booking.
	if h := s.get(r.ID).History[0]; h.Event != "lapsed" || h.Attempt != 1 {
		t.Errorf("the history is\n%s", s.story(r.ID))
	}
	if places, workers := s.booked("x"); len(places) != 1 || workers[0] != "survivor" {
		t.Errorf("booked at %v by %v", places, workers)
	}
}
