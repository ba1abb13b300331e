//go:build unix

package pawl_test

import (
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/steps"
)

const (
	beatLease = 10 * time.Second
	beatEvery = 25 * time.Millisecond
	// statedMargin is how long before its end a lease of beatLease is given up;
	// and no later after it may what was under way then arrive.
	statedMargin = beatLease / 10
)

// sight is what the database knew when a request arrived at the target.
type sight struct {
	Clock   time.Time
	Owner   string    // the worker whose lease it is,
	Expires time.Time // and when that ends: the lease's own expiry or its session's
}

// observe lets the target look at the one job that there is.
func (s *stage) observe() {
	s.target.observe = func(call) (v sight) {
		err := s.pool.QueryRow(s.Context(), `
			SELECT pawl.clock(), coalesce(o.name, ''), coalesce(least(j.expires_at, o.expires_at), 'epoch')
			  FROM (SELECT) one LEFT JOIN pawl.job j ON true LEFT JOIN pawl.session o ON o.id = j.owner`).Scan(&v.Clock, &v.Owner, &v.Expires)
		if err != nil && s.Context().Err() == nil {
			s.Errorf("the target's look at the database: %v", err)
		}
		return v
	}
}

// crashHeartbeatsLost: a worker's heartbeats don't arrive any more while its
// body goes on having effects. It is told before its lease can be given away,
// and has none later than expiry plus the stated margin.
func crashHeartbeatsLost(t *testing.T) {
	for _, c := range []struct {
		name, flow string
		session    time.Duration
		heartbeat  string // the statement
		everything bool   // is lost with it
	}{
		{"of_the_lease", "beats-short", 60 * time.Second, "Renew", false},
		{"of_the_session", "beats-long", beatLease, "Pulse", false},
		{"and_everything_else", "beats-short", beatLease, "Renew", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, c.flow)
			s.observe()
			proxy := proxyOf(s)
			var sent, lost atomic.Int64
			var lose atomic.Bool
			proxy.OnExecute(func(sql string) pgproxy.Action {
				mine, claim := strings.HasPrefix(sql, "-- name: "+c.heartbeat+" "), strings.HasPrefix(sql, "-- name: Claim ")
				switch {
				case lose.Load() && mine:
					lost.Add(1)
					return pgproxy.Stall
				case lose.Load() && claim: // else A might be the next holder itself
					return pgproxy.Stall
				case mine:
					sent.Add(1)
				}
				return pgproxy.Pass
			})
			s.worker(role{Name: "a", Database: proxy.URL(s.url), Session: c.session})
			r := s.start(c.flow, "x")
			s.until("some heartbeats have arrived", func() bool { return sent.Load() >= 3 && len(s.beats("a")) > 0 })
			s.worker(role{Name: "b", Session: 60 * time.Second})
			lose.Store(true)
			if c.everything {
				proxy.StallAll()
			}
			s.until("another has taken over", func() bool { return len(s.beats("b")) > 0 })
			s.target.enough()
			s.wait(r)
			if lost.Load() == 0 && !c.everything {
				t.Error("no heartbeat was lost")
			}
			s.gaveUpInTime(r.ID)
		})
	}
}

// proxyOf puts a proxy before the server of the stage's database.
func proxyOf(s *stage) *pgproxy.Proxy {
	s.Helper()
	u, err := url.Parse(s.url)
	if err != nil {
		s.Fatal(err)
	}
	p, err := pgproxy.New(u.Host)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(p.Close)
	return p
}

func (s *stage) beats(worker string) []call {
	return s.target.of("effects", func(c call) bool { return c.Worker == worker })
}

// gaveUpInTime compares, by the database's clock, the effects of A with the
// lease that A had.
func (s *stage) gaveUpInTime(id string) {
	s.Helper()
	as, bs := s.beats("a"), s.beats("b")
	var end time.Time
	for _, c := range as {
		if c.Seen.Owner == "a" {
			end = c.Seen.Expires
		}
	}
	last, first := as[len(as)-1], bs[0]
	if over := last.Seen.Clock.Sub(end); over > statedMargin {
		s.Errorf("A had an effect %v after its lease had expired", over)
	}
	if !last.Seen.Clock.Before(first.Seen.Clock) || last.Attempt != 1 || first.Attempt != 2 {
		s.Errorf("A's last effect was in attempt %d at %v, B's first in attempt %d at %v", last.Attempt, last.Seen.Clock, first.Attempt, first.Seen.Clock)
	}
	told := s.target.of("notes", func(c call) bool { return c.Worker == "a" })
	if len(told) != 1 || !strings.Contains(told[0].Text, steps.ErrLeaseLost.Error()) {
		s.Fatalf("A's body was told %+v", told)
	}
	// By the clock of the machine, which is the database's as well: a note's
	// own way to the target is not to be measured.
	text, _, _ := strings.Cut(told[0].Text, " ")
	ended, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		s.Fatal(err)
	}
	away := s.get(id).History[0].EndedAt // when it was given away
	if !ended.Before(away) {
		s.Errorf("A's context had ended at %v, after its lease was given away at %v", ended, away)
	}
	s.expect(id, "beat lapsed by recovery, attempt 1", "beat completed by worker, attempt 2")
	s.Logf("A's last effect arrived %v before the end of its lease, the end of its context %v before; it was given away %v after, B's first effect came %v after",
		end.Sub(last.Seen.Clock), end.Sub(ended), away.Sub(end), first.Seen.Clock.Sub(end))
}

// crashStopped: a process that was stopped between looking at its context and
// its effect has that effect whenever it wakes up, beside the one who has the
// lease then. Nothing here can prevent that; it is refused at its next write.
func crashStopped(t *testing.T) {
	s := newStage(t, "deaf")
	s.observe()
	about := s.target.hold(func(c call) bool { return c.Kind == "notes" && c.Worker == "a" })
	acted := s.target.holdAfter(func(c call) bool { return c.Kind == "effects" && c.Worker == "b" })
	a := s.worker(role{Name: "a"})
	r := s.start("deaf", "x")
	about.wait(t)
	a.pause(t)
	s.worker(role{Name: "b", Session: 30 * time.Second})
	acted.wait(t)
	before := s.rows(r.ID)

	about.release()
	a.resume(t)
	s.until("the stopped process has acted", func() bool { return len(s.beats("a")) > 0 })
	a.stop(t)
	if c := s.beats("a")[0]; c.Seen.Owner != "b" || c.Attempt != 1 {
		t.Errorf("no overlap: when A acted, in attempt %d, the lease was of %q", c.Attempt, c.Seen.Owner)
	}
	if n := s.target.count("act", "x"); n != 2 {
		t.Errorf("%d effects; both should have come", n)
	}
	if after := s.rows(r.ID); after != before {
		t.Errorf("the late worker has changed rows:\n%s\nwere\n%s", after, before)
	}
	acted.release()
	if out := s.wait(r); out != (receipt{"x", 1}) {
		t.Errorf("the run gives %+v, which is not B's", out)
	}
	s.expect(r.ID, "act lapsed by recovery, attempt 1", "act completed by worker, attempt 2")
}
