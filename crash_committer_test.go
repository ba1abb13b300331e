//go:build unix

package pawl_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/fault"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
)

// TestCommitterKilled kills a worker under load at every point of its
// committer: before a batch is sent; when it is sent and its answer under way;
// the same, and the batch reaches the server only when others have taken over;
// after the answer, before a slot is free. Nothing is lost, nothing is recorded
// twice, and no step has begun before its predecessor was durable.
func TestCommitterKilled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, label string
		action      pgproxy.Action
	}{
		{"before_it_is_sent", fault.BeforeCommit, pgproxy.Pass},
		{"sent_and_no_answer", "", pgproxy.CutAfter},
		{"sent_and_late", "", pgproxy.Stall},
		{"answered_and_no_slot_free", fault.AfterCommit, pgproxy.Pass},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const runs, batch = 120, 8 // the batch that is the last
			s := newStage(t, "chain")
			begunEarly := s.watchChain()
			proxy, err := pgproxy.New(pgtest.Server(t).Addr())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(proxy.Close)
			ins := make([]order, runs)
			for i := range ins {
				ins[i] = order{fmt.Sprint(i)}
			}
			all, err := engine.StartMany(t.Context(), s.e, contract("chain"), ins)
			if err != nil {
				t.Fatal(err)
			}
			doomed := s.spawn(role{Name: "doomed", Slots: 40, Kill: c.label, KillAt: batch, Database: proxy.URL(s.url)})
			if c.label == "" {
				var sent atomic.Int32
				proxy.OnExecute(func(sql string) pgproxy.Action {
					if strings.HasPrefix(sql, "-- name: Transition ") && sent.Add(1) == batch {
						doomed.pause(t) // so that it can't react to what follows
						return c.action
					}
					return pgproxy.Pass
				})
				s.until("the batch is sent", func() bool { return proxy.Fired(c.action) == 1 })
				doomed.kill(t)
				proxy.OnExecute(nil)
			}
			doomed.died(t)
			var done int
			s.scan("SELECT count(*) FROM pawl.history WHERE event = 'completed'", nil, &done)
			if done == 0 || done >= runs*chainLinks {
				t.Fatalf("%d steps were recorded when it died", done)
			}
			s.worker(role{Name: "survivor", Slots: 40})
			if c.action == pgproxy.Stall {
				s.until("others have taken over", func() bool {
					var lapsed int
					s.scan("SELECT count(*) FROM pawl.history WHERE event = 'lapsed'", nil, &lapsed)
					return lapsed > 0
				})
				proxy.Release()
			}
			for _, r := range all {
				s.wait(r)
			}
			if early := begunEarly.Load(); early > 0 {
				t.Errorf("%d steps had begun before what was before them was durable", early)
			}
			again := 0
			for i := range runs {
				for link := range chainLinks {
					switch n := len(s.target.of("effects", at(fmt.Sprint("link-", link), fmt.Sprint(i)))); n {
					case 1:
					case 2:
						again++
					default:
						t.Errorf("link %d of order %d was called %d times", link, i, n)
					}
				}
			}
			if again > 40 {
				t.Errorf("%d bodies ran again: more than there were slots", again)
			}
		})
	}
}

// watchChain counts the calls of a chain's links that came before the link
// before them was recorded.
func (s *stage) watchChain() *atomic.Int32 {
	early := &atomic.Int32{}
	s.target.observe = func(c call) sight {
		var link, n int
		if _, err := fmt.Sscanf(c.Step, "link-%d", &link); err != nil || link == 0 {
			return sight{}
		}
		if err := s.pool.QueryRow(context.Background(), `SELECT count(*) FROM pawl.run r JOIN pawl.history h ON h.shard = r.shard AND h.run_id = r.id
			WHERE convert_from(r.input, 'UTF8')::json ->> 'Name' = $1 AND h.node = $2 AND h.event = 'completed'`, c.Order, link-1).Scan(&n); err == nil && n != 1 {
			early.Add(1)
		}
		return sight{}
	}
	return early
}
