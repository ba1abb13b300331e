package alerts

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
)

// step is how often is scraped.
const step = 15 * time.Second

// trouble is what a Prometheus has seen, and the time at which it must cry.
type trouble struct {
	series string
	by     time.Duration
	labels map[string]string // of the alert, besides those of the rule
}

// cases are what the alerts are for. 240 scrapes are an hour.
var cases = map[string]trouble{
	"PawlNoWorker": {`pawl_slots{pawl_worker="w"} 20x20 stale`, 15 * time.Minute, nil},
	"PawlStandsStill": {`
		pawl_slots{pawl_worker="w"} 20x240
		pawl_queue_oldest_seconds{pawl_queue="q",instance="a"} 0x40 0+15x100
		pawl_transitions_total{pawl_workflow="o",pawl_step="s",pawl_queue="q",pawl_outcome="completed"} 0+50x40 2000x100`, 15 * time.Minute, nil},
	"PawlLate": {`
		pawl_queue_oldest_seconds{pawl_queue="slow",instance="a"} 0x20 0+15x100
		pawl_queue_oldest_seconds{pawl_queue="q",instance="a"} 0x200
		pawl_transitions_total{pawl_workflow="o",pawl_step="s",pawl_queue="q",pawl_outcome="completed"} 0+50x200`, 20 * time.Minute, map[string]string{"pawl_queue": "slow"}},
	"PawlStranded": {`pawl_queue_stranded_oldest_seconds{pawl_queue="q",instance="a"} 0x20 0+15x100`, 15 * time.Minute, map[string]string{"pawl_queue": "q"}},
	// The first of its kind: the counter has no value before it.
	"PawlDead":             {`pawl_dead_total{pawl_workflow="o",pawl_step="charge",error_type="NO_FUNDS"} _x80 1x100`, 21 * time.Minute, map[string]string{"error_type": "NO_FUNDS"}},
	"PawlUncertainOverdue": {`pawl_uncertain_overdue_seconds{instance="a"} 0x20 0+15x100`, 12 * time.Minute, nil},
	"PawlUncertainLong":    {`pawl_uncertain_oldest_seconds{instance="a"} 0x20 0+15x300`, 66 * time.Minute, nil},
	// All that begins lapses, and nothing else ever ends.
	"PawlLapses": {`pawl_lapses_total{pawl_workflow="o",pawl_step="import"} _x20 1+1x100`, 17 * time.Minute, map[string]string{"pawl_step": "import"}},
	"PawlFenceRefusals": {`
		pawl_transitions_total{pawl_workflow="o",pawl_step="s",pawl_queue="q",pawl_outcome="completed"} 0+10x200
		pawl_transitions_total{pawl_workflow="o",pawl_step="s",pawl_queue="q",pawl_outcome="lost"} _x20 1+1x100
		pawl_fence_refusals_total{pawl_workflow="o",pawl_step="s",pawl_queue="q",pawl_outcome="lost"} _x20 1+1x100`, 17 * time.Minute, map[string]string{"pawl_workflow": "o"}},
	"PawlSnapshotOld": {`pawl_snapshot_age_seconds{pawl_kind="session",pawl_snapshot_holder="report psql"} 0x4 0+15x240`, 33 * time.Minute,
		map[string]string{"pawl_snapshot_holder": "report psql"}},
	"PawlStandbyHoldsRows": {`pawl_snapshot_transactions{pawl_kind="replication slot",pawl_snapshot_holder="gone"} 0+50000x240`, 32 * time.Minute,
		map[string]string{"pawl_snapshot_holder": "gone"}},
	"PawlPartitionsFew": {`pawl_partitions_ahead_days{instance="a"} 30x10 6x100`, 20 * time.Minute, nil},
	"PawlPoolWaits": {`
		pawl_pool_waits_total{pawl_worker="w"} 0+100x200
		pawl_pool_wait_duration_seconds_total{pawl_worker="w"} 0+30x200`, 20 * time.Minute, map[string]string{"pawl_worker": "w"}},
}

// well is a day of work without trouble: a little of everything, a new process
// now and then, one that was killed, and a queue in which nothing is due.
const well = `
	pawl_slots{pawl_worker="w"} 20x400
	pawl_slots{pawl_worker="v"} _x200 20x200
	pawl_transitions_total{pawl_workflow="o",pawl_step="s",pawl_queue="q",pawl_outcome="completed",instance="a"} 0+100x400
	pawl_transitions_total{pawl_workflow="o",pawl_step="s",pawl_queue="q",pawl_outcome="completed",instance="b"} _x200 100+100x200
	pawl_queue_oldest_seconds{pawl_queue="q",instance="a"} 0x200 2x20 0x180
	pawl_queue_oldest_seconds{pawl_queue="r",instance="a"} 0x400
	pawl_queue_stranded_oldest_seconds{pawl_queue="q",instance="a"} 0x200 30 45 0x198
	pawl_dead_total{pawl_workflow="o",pawl_step="s",error_type="NO_FUNDS",instance="b"} 7x400
	pawl_uncertain_overdue_seconds{instance="a"} 0x200 4 0x199
	pawl_uncertain_oldest_seconds{instance="a"} 0x200 0+15x20 0x180
	pawl_lapses_total{pawl_workflow="o",pawl_step="s",instance="a"} _x100 20x300
	pawl_fence_refusals_total{pawl_workflow="o",pawl_step="s",pawl_queue="q",pawl_outcome="lost",instance="a"} _x100 1x300
	pawl_snapshot_age_seconds{pawl_kind="session",pawl_snapshot_holder="backup"} 0+15x100 _x300
	pawl_snapshot_transactions{pawl_kind="standby",pawl_snapshot_holder="two"} 900x400
	pawl_partitions_ahead_days{instance="a"} 30x300 29x100
	pawl_pool_waits_total{pawl_worker="w"} 0+1x400
	pawl_pool_wait_duration_seconds_total{pawl_worker="w"} 0+0.004x400`

func TestAlertsFire(t *testing.T) {
	there := map[string]rule{}
	for _, r := range rules(t) {
		there[r.Alert] = r
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r, ok := there[name]
			if !ok {
				t.Fatal("there is no such alert")
			}
			store := promqltest.LoadedStorage(t, "load 15s"+lines(c.series))
			first := fires(t, store, r, 0, 2*time.Hour)
			for _, f := range first {
				if labelled(f.labels, c.labels) {
					t.Logf("after %v", f.at)
					if f.at > c.by {
						t.Errorf("it fires after %v, not within %v", f.at, c.by)
					}
					return
				}
			}
			t.Errorf("it does not fire for %v, but for %v", c.labels, first)
		})
	}
}

func TestAlertsSilent(t *testing.T) {
	store := promqltest.LoadedStorage(t, "load 15s"+lines(well))
	// What it has not known for a quarter of an hour is new to it.
	for _, r := range rules(t) {
		if got := fires(t, store, r, 15*time.Minute, 100*time.Minute); len(got) > 0 {
			t.Errorf("%s fires without trouble: %v", r.Alert, got)
		}
	}
}

// lines is one series a line, without what makes it readable here.
func lines(text string) (out string) {
	for l := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		out += "\n  " + strings.TrimSpace(l)
	}
	return out + "\n"
}

func labelled(got, want map[string]string) bool {
	for k, v := range want {
		if got[k] != v {
			return false
		}
	}
	return true
}

type firing struct {
	at     time.Duration
	labels map[string]string
}

// fires evaluates a rule at every scrape, as Prometheus does: true for as long as
// the rule says, and without a gap. The first firing of each set of labels.
func fires(t *testing.T, store storage.Queryable, r rule, from, until time.Duration) (all []firing) {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{Logger: promslog.NewNopLogger(), MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	defer engine.Close()
	since, done := map[string]time.Duration{}, map[string]bool{}
	for at := from; at <= until; at += step {
		q, err := engine.NewInstantQuery(context.Background(), store, nil, r.Expr, time.UnixMilli(0).Add(at))
		if err != nil {
			t.Fatal(err)
		}
		result := q.Exec(context.Background())
		vector, err := result.Vector()
		if err != nil {
			t.Fatal(err)
		}
		now := map[string]time.Duration{}
		for _, s := range vector {
			key := s.Metric.String()
			now[key] = at
			if was, ok := since[key]; ok {
				now[key] = was
			}
			if at-now[key] >= time.Duration(r.For) && !done[key] {
				done[key] = true
				all = append(all, firing{at, s.Metric.Map()})
			}
		}
		since = now
		q.Close()
	}
	slices.SortStableFunc(all, func(a, b firing) int { return int(a.at - b.at) })
	return all
}
