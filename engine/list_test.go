package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

func TestList(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := effPool(t, pgtest.Database(t))
	release := make(chan struct{})
	w, other := steps.Declare[string, string]("listed"), steps.Declare[string, string]("other's \"list\"")
	same := func(_ context.Context, s string) (string, error) { return s, nil }
	def := w.Define(func(f *steps.Flow, in steps.Ref[string]) steps.Ref[string] {
		a := steps.New("first", func(_ context.Context, s string) (string, error) {
			if s == "running" {
				<-release
			}
			return s, nil
		}).Do(f, in)
		return steps.New("second", func(_ context.Context, s string) (string, error) {
			switch s {
			case "dead":
				return "", steps.Permanent("NO_STOCK", nil)
			case "retrying":
				return "", steps.RetryAfter(time.Hour, errPlain)
			case "uncertain":
				return "", steps.Uncertain(errPlain)
			}
			return s, nil
		}).Do(f, a)
	})
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{def, other.Of(steps.New("only", same))}})
	work(t, e)
	t.Cleanup(func() { close(release) })
	begin := effScan[time.Time](t, pool, "SELECT now()")
	ids := map[string]string{}
	var order []string
	for _, name := range []string{"done", "dead", "retrying", "uncertain", "running", "later", "cancelled"} {
		opts := []engine.StartOption{engine.Key("key of " + name), engine.Tags("all", "tag of "+name), engine.WithPriority(engine.High)}
		if name == "later" || name == "cancelled" {
			opts = append(opts, engine.After(time.Hour))
		}
		ids[name] = effStart(t, e, w, name, opts...).ID
		order = append(order, ids[name])
	}
	if err := e.Cancel(ctx, ids["cancelled"], effPerson); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]engine.State{"done": engine.Succeeded, "dead": engine.Failed, "retrying": engine.Scheduled, "uncertain": engine.Uncertain, "running": engine.Running} {
		effState(t, e, ids[name], s)
	}
	effUntil(t, "the slow step to be claimed", func() bool { return effGet(t, e, ids["running"]).Jobs[0].State == "running" })
	middle := effScan[time.Time](t, pool, "SELECT clock_timestamp()")
	ids["other"] = effStart(t, e, other, "x", engine.Tags("all")).ID
	effState(t, e, ids["other"], engine.Succeeded)

	for _, c := range []struct {
		what   string
		filter engine.Filter
		want   []string
	}{
		{"everything", engine.Filter{}, []string{"other", "cancelled", "later", "running", "uncertain", "retrying", "dead", "done"}},
		{"workflow", engine.Filter{Workflow: "other's \"list\""}, []string{"other"}},
		{"no such workflow", engine.Filter{Workflow: "nothing"}, nil},
		{"succeeded", engine.Filter{States: []engine.State{engine.Succeeded}}, []string{"other", "done"}},
		{"failed", engine.Filter{States: []engine.State{engine.Failed}}, []string{"dead"}},
		{"scheduled", engine.Filter{States: []engine.State{engine.Scheduled}}, []string{"later", "retrying"}},
		{"uncertain or running", engine.Filter{States: []engine.State{engine.Uncertain, engine.Running}}, []string{"running", "uncertain"}},
		{"cancelled", engine.Filter{States: []engine.State{engine.Cancelled}}, []string{"cancelled"}},
		{"stranded", engine.Filter{States: []engine.State{engine.Stranded}}, nil},
		{"first step", engine.Filter{Step: "first"}, []string{"later", "running"}},
		{"second step", engine.Filter{Step: "second"}, []string{"uncertain", "retrying", "dead"}},
		{"code", engine.Filter{Code: "NO_STOCK"}, []string{"dead"}},
		{"key", engine.Filter{Key: "key of later"}, []string{"later"}},
		{"tag", engine.Filter{Tags: []string{"tag of dead"}}, []string{"dead"}},
		{"all of some tags", engine.Filter{Tags: []string{"tag of dead", "tag of done"}}, nil},
		{"since", engine.Filter{Since: middle}, []string{"other"}},
		{"until", engine.Filter{Until: middle, Workflow: "listed", States: []engine.State{engine.Failed}}, []string{"dead"}},
		{"before it began", engine.Filter{Until: begin.Add(-time.Hour)}, nil},
		{"several at once", engine.Filter{Workflow: "listed", Step: "second", Tags: []string{"all"}, Code: "RETRY_AFTER", Since: begin.Add(-time.Hour)}, []string{"retrying"}},
		{"a page", engine.Filter{Workflow: "listed", Limit: 2}, []string{"cancelled", "later"}},
		{"the next page", engine.Filter{Workflow: "listed", Limit: 2, Before: ids["later"]}, []string{"running", "uncertain"}},
	} {
		infos, err := e.List(ctx, c.filter)
		var got []string
		for _, i := range infos {
			for name, id := range ids {
				if id == i.ID {
					got = append(got, name)
				}
			}
		}
		// Runs of one millisecond are in no order of their starts, but in one order.
		if wantSorted, gotSorted := slices.Sorted(slices.Values(c.want)), slices.Sorted(slices.Values(got)); err != nil || c.filter.Limit == 0 && !slices.Equal(wantSorted, gotSorted) || c.filter.Limit > 0 && len(got) != len(c.want) {
			t.Errorf("%s: %v, %v; not %v", c.what, got, err, c.want)
		}
		if !slices.IsSortedFunc(infos, func(a, b engine.RunInfo) int { return -compareIDs(a.ID, b.ID) }) {
			t.Errorf("%s: not newest first", c.what)
		}
	}
	// Pages leave nothing out and show nothing twice.
	seen := map[string]int{}
	for f := (engine.Filter{Limit: 3}); len(seen) <= len(ids); {
		page, err := e.List(ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range page {
			seen[i.ID]++
			f.Before = i.ID
		}
		if len(page) == 0 || seen[page[0].ID] > 1 {
			break
		}
	}
	for _, id := range order {
		if seen[id] != 1 {
			t.Errorf("run %s is on %d pages", id, seen[id])
		}
	}
	// What List says of a run is what Get says.
	infos, err := e.List(ctx, engine.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range infos {
		g := effGet(t, e, l.ID)
		if l.State != g.State || l.Step != g.Step || l.Code != g.Code || l.Key != g.Key || l.Priority != g.Priority || !slices.Equal(l.Tags, g.Tags) ||
			!l.CreatedAt.Equal(g.CreatedAt) || !l.EndedAt.Equal(g.EndedAt) || l.State == engine.Scheduled && !l.DueAt.Equal(g.DueAt) {
			t.Errorf("List says %+v, Get %+v", l, g)
		}
	}
	for _, f := range []engine.Filter{{Limit: -1}, {Limit: 1001}, {Before: "x"}, {Key: "\x00"}, {Code: "\xff"}, {Workflow: "a\x00"}, {Step: "\xff"}, {Tags: []string{"\x00"}}, {States: []engine.State{"\x00"}}} {
		if _, err := e.List(ctx, f); err == nil {
			t.Errorf("%+v was taken", f)
		}
	}
}

func compareIDs(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Claims prefer priority, then what has been due for longest. A start for later
// is due then, by the database's clock, and stands in nobody's way.
func TestClaimOrder(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	w := steps.Declare[string, string]("ordered")
	var mu sync.Mutex
	var ran []string
	e := effEngine(t, pool, engine.Config{Slots: 1, Workflows: []steps.Definition{w.Of(steps.New("step", func(_ context.Context, s string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, s)
		return s, nil
	}))}})
	var want []string
	var runs []engine.Run[string]
	due := effScan[time.Time](t, pool, "SELECT now() - interval '1 hour'")
	for _, p := range []engine.Priority{engine.Low, engine.Normal, engine.High, engine.Urgent} {
		for i := range 3 {
			name := fmt.Sprintf("%d-%d", engine.Urgent-p, i)
			r := effStart(t, e, w, name, engine.WithPriority(p))
			// Due in the opposite order of the starts.
			effExec(t, pool, "UPDATE pawl.job SET due_at = $2 WHERE run_id = $1", r.ID, due.Add(time.Duration(i)*time.Minute))
			runs, want = append(runs, r), append(want, name)
		}
	}
	slices.Sort(want)
	later := effStart(t, e, w, "later", engine.WithPriority(engine.Urgent), engine.After(24*time.Hour))
	soon := effStart(t, e, w, "soon", engine.WithPriority(engine.Urgent), engine.At(effScan[time.Time](t, pool, "SELECT now() + interval '3 seconds'")))
	past := effStart(t, e, w, "past", engine.WithPriority(engine.Low), engine.At(time.Now().AddDate(-10, 0, 0)))
	work(t, e)
	for _, r := range append(runs, soon, past) {
		effSuccess(t, e, r)
	}
	mu.Lock()
	var got []string
	for _, name := range ran {
		if name != "soon" && name != "past" {
			got = append(got, name)
		}
	}
	mu.Unlock()
	if !slices.Equal(got, want) {
		t.Errorf("ran %v, not %v", got, want)
	}
	if info := effGet(t, e, soon.ID); info.History[0].GrantedAt.Before(info.CreatedAt.Add(2 * time.Second)) {
		t.Errorf("started for later, and granted at once: %+v", info)
	}
	if info := effGet(t, e, later.ID); info.State != engine.Scheduled || info.DueAt.Sub(info.CreatedAt) < 24*time.Hour-time.Second {
		t.Errorf("%+v", info)
	}
}
