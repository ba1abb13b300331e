//go:build unix

package pawl_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/fault"
)

// crashUniqueLeases: four processes claim two thousand jobs at once, and no
// job is leased twice: each body is called once, as attempt 1, by the process
// whose lease its completion has closed.
func crashUniqueLeases(t *testing.T) {
	const jobs, workers = 2000, 4
	s := newStage(t, "short")
	// All answers wait until each process has begun something: none can have
	// taken everything before another came.
	all := s.target.hold(at("call", ""))
	for i := range workers {
		s.worker(role{Name: fmt.Sprint("w", i), Slots: 50, Session: 15 * time.Second})
	}
	ins := make([]order, jobs)
	for i := range ins {
		ins[i] = order{fmt.Sprint(i)}
	}
	if _, err := engine.StartMany(t.Context(), s.e, contract("short"), ins); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for len(seen) < workers {
		seen[all.wait(t).Worker] = true
	}
	all.release()
	s.succeed(jobs)

	share := map[string]int{}
	byOrder := map[string]call{}
	for _, c := range s.target.of("effects", at("call", "")) {
		if before, twice := byOrder[c.Order]; twice {
			t.Fatalf("order %s was worked on twice: %+v and %+v", c.Order, before, c)
		}
		byOrder[c.Order] = c
		share[c.Worker]++
	}
	if len(byOrder) != jobs {
		t.Errorf("%d of %d orders were worked on", len(byOrder), jobs)
	}
	t.Logf("shares: %v", share)

	rows, err := s.pool.Query(t.Context(), `
		SELECT convert_from(r.input, 'UTF8')::json ->> 'Name', h.job, h.token, h.attempt, h.event, o.name
		  FROM pawl.history h JOIN pawl.run r ON r.id = h.run_id JOIN pawl.session o ON o.id = h.owner`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	leases := map[[2]int64]bool{}
	for rows.Next() {
		var (
			name, event, owner string
			job, token         int64
			attempt            int
		)
		if err := rows.Scan(&name, &job, &token, &attempt, &event, &owner); err != nil {
			t.Fatal(err)
		}
		if lease := [2]int64{job, token - 1}; leases[lease] {
			t.Errorf("job %d was leased twice with token %d", job, token-1)
		} else {
			leases[lease] = true
		}
		if c := byOrder[name]; token != 2 || attempt != 1 || event != "completed" || c.Worker != owner || c.Attempt != 1 {
			t.Errorf("order %s: %s by %s with token %d in attempt %d, but it was %s's attempt %d", name, event, owner, token, attempt, c.Worker, c.Attempt)
		}
	}
	if err := rows.Err(); err != nil || len(leases) != jobs {
		t.Errorf("%d leases for %d jobs, %v", len(leases), jobs, err)
	}
}

// crashAfterClaim: a process dies with a job that it has claimed and not begun.
func crashAfterClaim(t *testing.T) {
	s := newStage(t, "short")
	r := s.start("short", "x")
	a := s.spawn(role{Name: "a", Kill: fault.AfterClaim})
	a.died(t)
	var state, owner string
	var token int64
	s.scan("SELECT j.state, j.token, s.name FROM pawl.job j JOIN pawl.session s ON s.id = j.owner WHERE j.run_id = $1", []any{r.ID}, &state, &token, &owner)
	if state != "running" || token != 1 || owner != "a" {
		t.Fatalf("the claim should have been committed: the job is %s with token %d and owner %s", state, token, owner)
	}

	s.worker(role{Name: "b"})
	s.wait(r)
	s.expect(r.ID, "call lapsed by recovery, attempt 1", "call completed by worker, attempt 2")
	info := s.get(r.ID)
	if by := s.owner(info.History[1].Owner); by != "b" || info.History[0].Code != "LEASE_EXPIRED" {
		t.Errorf("completed by %q after %+v", by, info.History[0])
	}
	if cs := s.target.of("effects", at("call", "x")); len(cs) != 1 || cs[0].Worker != "b" || cs[0].Attempt != 2 {
		t.Errorf("the target was called by %+v", cs)
	}
}
