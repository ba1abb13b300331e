package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/view"
	"github.com/pawlworks/pawl/steps"
)

// reads runs a command on the database, and looks at what every output must be:
// no wider than the screen, and nothing that a terminal would obey.
func (p *planted) reads(code int, command string, args ...string) string {
	p.t.Helper()
	got, out, errOut := pawl(p.t, append([]string{command, "-database", p.url}, args...)...)
	if got != code || code == exitOK && errOut != "" {
		p.t.Errorf("%s %v: exit code %d, not %d\n%s\n%s", command, args, got, code, out, errOut)
	}
	asJSON := strings.Contains(strings.Join(args, " "), "-json")
	for line := range strings.SplitSeq(out+errOut, "\n") {
		if width(line) > screen && !asJSON && errOut == "" {
			p.t.Errorf("%s %v: %d columns: %s", command, args, width(line), line)
		}
		if i := strings.IndexFunc(line, func(r rune) bool { return unicode.IsControl(r) || r == '\u202e' }); i >= 0 && !strings.HasPrefix(line[i:], "\t") {
			p.t.Errorf("%s %v: a control character: %q", command, args, line)
		}
	}
	return out + errOut
}

// says fails for each text that is not there.
func (p *planted) says(out string, texts ...string) {
	p.t.Helper()
	flat := strings.Join(strings.Fields(out), " ")
	for _, text := range texts {
		if !strings.Contains(flat, text) {
			p.t.Errorf("it does not say %q:\n%s", text, out)
		}
	}
}

func (p *planted) status() (s view.Status) {
	p.t.Helper()
	_, out, errOut := pawl(p.t, "status", "-json", "-database", p.url)
	if err := json.Unmarshal([]byte(out), &s); err != nil || errOut != "" || strings.Count(out, "\n") != 1 {
		p.t.Fatalf("%v: %s%s", err, out, errOut)
	}
	return s
}

func (p *planted) troubles(s view.Status) string {
	var kinds []string
	for _, t := range s.Troubles {
		kinds = append(kinds, t.Kind)
	}
	return strings.Join(kinds, " ")
}

func TestStatusWell(t *testing.T) {
	t.Parallel()
	p := plant(t)
	p.says(p.reads(exitOK, "status"), "WELL: nothing needs a person", "WORKERS: none", "QUEUES: nothing waits", "partitions for 30 days ahead")
	p.work(p.e)
	p.until(p.start(orders, "fine"), engine.Succeeded)
	p.says(p.reads(exitOK, "status"), "WORKERS: 1 alive", "alive worker-1 on", "queues default")
	s := p.status()
	if !s.Well || !s.Since.IsZero() || len(s.Workers) != 1 || s.Workers[0].PID == 0 || s.Workers[0].Build == "" || strings.Join(s.Workers[0].Workflows, " ") != "later mail order" {
		t.Errorf("%+v", s)
	}
}

// TestStatusTrouble: what is dead, uncertain, failing, and who holds a snapshot.
func TestStatusTrouble(t *testing.T) {
	t.Parallel()
	p := plant(t)
	p.trouble()
	p.snapshot("report\x1b[1m")
	p.hours("2 hours")
	out := p.reads(exitFailed, "status")
	p.says(out, "NOT WELL since 2h", "! 2 runs have failed and wait for a person: replay or cancel, since 2h", "! 1 effect waits for a person", "! 1 effect is due to be asked about, and nobody asks",
		"! a session holds an old snapshot",
		"1 order/charge DECLINED owner payments", "says: the bank says no", "pawl show "+p.runs["declined"],
		"mail/send UNKNOWN owner postmaster", "next: a person says what became of it: the step is Manual", "says: no answer came", "pawl show "+p.runs["lost"],
		"later/transfer UNKNOWN", "its look-up is due, and no worker asks", "pawl show "+p.runs["asked"],
		"NOBODY TAKES", "why: no worker is alive: start one", "pawl show "+p.runs["provider down"],
		"FAILING: is tried again", "RETRY_AFTER", "says: connection refused", "oldest snapshot: session postgres report")
	s := p.status()
	if got := p.troubles(s); s.Well || got != "dead resolve question unclaimed snapshot" {
		t.Errorf("troubles %q", got)
	}
	for _, c := range s.Dead {
		if c.Count != 1 || c.Owner != "payments" || c.First.IsZero() || !c.First.Equal(c.Last) || s.At.Sub(c.First).Hours() < 2 {
			t.Errorf("%+v", c)
		}
	}
	if len(s.Dead) != 2 || len(s.Failing) != 1 || s.Failing[0].Budget != 25 || len(s.Effects) != 2 || len(s.Unclaimed) != 1 || s.Unclaimed[0].Stranded {
		t.Errorf("%+v", s)
	}
}

// TestStatusStopped: a worker that stopped without saying so, alone.
func TestStatusStopped(t *testing.T) {
	t.Parallel()
	p := plant(t)
	p.start(orders, "fine")
	owner := uuid.New()
	p.exec(`INSERT INTO pawl.session (id, name, routes, floors, started_at, expires_at, host, pid, build, pawl)
		SELECT $1, E'worker\x1b[5m-9', array_agg(id), array_agg(0), now() - interval '1 hour', now() - interval '5 minutes', 'host-7', 4711, 'example.com/shop v1.2.3', 'v0.1.0' FROM pawl.route`, owner)
	p.exec(`UPDATE pawl.job SET state = 'running', owner = $1, token = 1, attempt = 1, granted_at = now() - interval '6 minutes', expires_at = now() - interval '4 minutes', deadline_at = now()`, owner)
	p.says(p.reads(exitFailed, "status"), "NOT WELL since 5m", "no worker is alive: the last ones have stopped", "1 lease is over and nobody takes the job back",
		`SILENT worker\x1b[5m-9 on host-7, process 4711, holds 1`, "no word since 5m")
	s := p.status()
	if got := p.troubles(s); got != "workers lapsed" || s.Workers[0].State != "silent" || s.Workers[0].Build != "example.com/shop v1.2.3" || s.Queues[0].Running != 1 {
		t.Errorf("%q, %+v", got, s)
	}
	p.says(p.reads(exitOK, "show", p.runs["fine"]), "next its lease is over: any worker takes it back", "process 4711, SILENT")
	// Another takes its job back, and says so for an hour.
	p.work(p.e)
	p.until(p.runs["fine"], engine.Succeeded)
	p.says(p.reads(exitOK, "status"), "WELL", "gone worker", "its jobs were taken back")
}

// TestStatusUnclaimed: why nobody takes what is due.
func TestStatusUnclaimed(t *testing.T) {
	t.Parallel()
	p := plant(t)
	p.start(mails, "no such workflow")
	p.start(orders, "no such graph")
	charged := orders.Define(func(f *steps.Flow, in steps.Ref[string]) steps.Ref[string] {
		return steps.New("ship", body, steps.Queue("harbour")).Do(f, steps.New("weigh", body).Do(f, in))
	})
	p.e = p.engine(engine.Config{Workflows: []steps.Definition{charged}})
	p.start(orders, "no such step")
	known := p.engine(engine.Config{Name: "new build", Queues: []string{"harbour", "default"}, Workflows: []steps.Definition{orders.Define(
		func(f *steps.Flow, in steps.Ref[string]) steps.Ref[string] {
			return steps.New("ship", body, steps.Queue("harbour")).Do(f, in)
		})}})
	elsewhere := steps.Declare[string, string]("elsewhere")
	twoQueues := elsewhere.Define(func(f *steps.Flow, in steps.Ref[string]) steps.Ref[string] {
		return steps.New("b", body, steps.Queue("b")).Do(f, steps.New("a", body, steps.Queue("a")).Do(f, in))
	})
	far := p.engine(engine.Config{Workflows: []steps.Definition{twoQueues}})
	p.e = far
	p.start(elsewhere, "no such queue")
	p.work(known)
	p.work(p.engine(engine.Config{Queues: []string{"b"}, Workflows: []steps.Definition{twoQueues}}))
	for open := 0; open < 2; {
		if err := p.pool.QueryRow(context.Background(), "SELECT count(*) FROM pawl.session").Scan(&open); err != nil {
			t.Fatal(err)
		}
	}
	out := p.reads(exitFailed, "status", "-all")
	p.says(out, "4 jobs are due that no live worker takes", "STRANDED", `no live worker has workflow "mail": deploy one that names it in Config.Workflows`,
		"has this workflow, but not the graph that this run was started with", `knows this workflow only from step "ship" on`, `no live worker serves queue "a": start one whose Config.Queues is empty or names it`)
	p.says(p.reads(exitOK, "list", "-state", "stranded"), p.runs["no such step"], "order/weigh", p.runs["no such graph"], "stranded")
	p.says(p.reads(exitOK, "show", p.runs["no such step"]), `it is due and nobody takes it: the live workers' code knows this workflow only from step "ship" on`)
	if s := p.status(); len(s.Unclaimed) != 4 {
		t.Errorf("%+v", s.Unclaimed)
	}
}
