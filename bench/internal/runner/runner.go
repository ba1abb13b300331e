package runner

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pawlworks/pawl/bench/internal/child"
	"github.com/pawlworks/pawl/bench/internal/report"
	"github.com/pawlworks/pawl/bench/internal/server"
	"github.com/pawlworks/pawl/bench/internal/system"
	"github.com/pawlworks/pawl/bench/internal/workload"
)

// Result is what a run of the bench has found.
type Result struct {
	Table       report.Table
	Notes       []string // what the figures don't tell, failures among it
	Failed      []string // measurements that failed
	Workloads   []workload.Workload
	Contestants []system.Contestant
	Machine     server.Machine
	Options     Options
	Took        time.Duration
}

type runner struct {
	*Result
	server *server.Server
	log    io.Writer
}

// Run runs the bench; progress goes to log.
func Run(ctx context.Context, o Options, log io.Writer) (*Result, error) {
	o.Defaults()
	r := &runner{Result: &Result{Options: o}, log: log}
	began := time.Now()
	var err error
	if r.Workloads, err = o.workloads(); err != nil {
		return nil, err
	}
	if r.Contestants, err = o.contestants(); err != nil {
		return nil, err
	}
	if r.server, err = server.Start(ctx); err != nil {
		return nil, err
	}
	defer r.server.Stop()
	if r.Machine, err = r.server.Machine(ctx); err != nil {
		return nil, err
	}
	if !r.server.Statements {
		r.Notes = append(r.Notes, "pg_stat_statements could not be loaded: statements are counted on the wire alone, as round trips")
	}
	for _, w := range r.Workloads {
		for round := range o.Rounds {
			if err := r.round(ctx, w, round); err != nil {
				return r.Result, err
			}
		}
	}
	r.Took = time.Since(began)
	return r.Result, nil
}

// round measures each case of a workload with each contestant once. Who comes
// first changes from round to round.
func (r *runner) round(ctx context.Context, w workload.Workload, round int) error {
	for k, c := range w.Cases {
		for i := range r.Contestants {
			s := r.Contestants[(i+round)%len(r.Contestants)]
			if !c.For(s) || r.Options.skips(w, k, s) {
				continue
			}
			what := strings.Join(slices.DeleteFunc([]string{w.Name, c.Name, s.Name, s.Variant}, func(s string) bool { return s == "" }), ", ")
			began := time.Now()
			got, err := r.measure(ctx, w, c, s, fmt.Sprintf("%s-%d-%s%s-%d.pprof", w.Name, k, s.Name, s.Variant, round+1))
			if ctx.Err() != nil {
				return ctx.Err()
			}
			took := time.Since(began).Round(100 * time.Millisecond)
			r.Table.Add(w.Name, s.Name, s.Variant, c.Name, got.Values)
			for _, n := range got.Notes {
				r.note(fmt.Sprintf("%s, round %d: %s", what, round+1, n))
			}
			if err != nil {
				r.Failed = append(r.Failed, what)
				r.note(fmt.Sprintf("%s, round %d failed: %v", what, round+1, err))
			}
			fmt.Fprintf(r.log, "%s, round %d: %v\n", what, round+1, took)
		}
	}
	return nil
}

func (r *runner) note(text string) {
	r.Notes = append(r.Notes, text)
	fmt.Fprintln(r.log, "  "+text)
}

func (r *runner) measure(ctx context.Context, w workload.Workload, c workload.Case, s system.Contestant, profile string) (workload.Report, error) {
	name, url, err := r.server.Database(ctx)
	if err != nil {
		return workload.Report{}, err
	}
	o := r.Options
	if o.Profile == "" {
		profile = ""
	} else {
		profile = filepath.Join(o.Profile, profile)
	}
	p, err := child.Start[workload.Report](ctx, workload.Order{Workload: w.Name, Case: c, Contestant: s.Name, Variant: s.Variant,
		URL: url, AdminURL: r.server.Local.URL("postgres"), Postmaster: r.server.Local.Pid(), Statements: r.server.Statements,
		Scale: o.Scale, PeerScale: o.PeerScale, Quick: o.Quick, Slots: o.Slots, Conns: o.Conns, Profile: profile})
	if err != nil {
		return workload.Report{}, err
	}
	got, err := p.Wait()
	drop := r.server.Drop(context.WithoutCancel(ctx), name)
	if err == nil && drop != nil {
		fmt.Fprintln(os.Stderr, "dropping a database:", drop)
	}
	return got, err
}
