//go:build unix

package pawl_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
)

// crashLockedRow: somebody's transaction holds the rows of some runs, and
// hundreds of others go on. A job that is due, one whose body returns
// meanwhile, one whose run's row is held as it ends: each ends when it is let go.
func crashLockedRow(t *testing.T) {
	s := newStage(t, "short")
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }() // nothing was written
	lock := func(sql, id string) {
		t.Helper()
		var found bool
		if err := tx.QueryRow(t.Context(), sql, id).Scan(&found); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	const job, run = "SELECT true FROM pawl.job WHERE run_id = $1 FOR UPDATE", "SELECT true FROM pawl.run WHERE id = $1 FOR UPDATE"

	held := map[string]engine.Run[receipt]{"due": s.start("short", "due")}
	lock(job, held["due"].ID)
	s.worker(role{Name: "a", Slots: 20, Session: 30 * time.Second})
	// Two of each, one after the other: there are two writers who could be stuck.
	for i := range 2 {
		returning, ending := fmt.Sprint("returning-", i), fmt.Sprint("ending-", i)
		here := s.target.hold(func(c call) bool { return c.Order == returning || c.Order == ending })
		held[returning], held[ending] = s.start("short", returning), s.start("short", ending)
		here.wait(t)
		here.wait(t)
		lock(job, held[returning].ID)
		lock(run, held[ending].ID)
		here.release()
		s.wait(s.start("short", fmt.Sprint("between-", i)))
	}

	ins := make([]order, 300)
	for i := range ins {
		ins[i] = order{fmt.Sprint(i)}
	}
	if _, err := engine.StartMany(t.Context(), s.e, contract("short"), ins); err != nil {
		t.Fatal(err)
	}
	s.succeed(2 + len(ins))
	for name, r := range held {
		if info := s.get(r.ID); info.State != engine.Running || len(info.History) != 0 {
			t.Errorf("%s: %s after %+v", name, info.State, info.History)
		}
	}
	if n := s.target.count("call", "due"); n != 0 {
		t.Error("the job whose row was held was worked on")
	}

	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, r := range held {
		s.wait(r)
		s.expect(r.ID, "call completed by worker, attempt 1")
	}
}
