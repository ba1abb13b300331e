package csvimport

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/examples/import/meter"
	"github.com/pawlworks/pawl/steps"
)

// Options say what Run imports and how it tells of it.
type Options struct {
	Pool     *pgxpool.Pool
	Path     string    // Default: the sample
	Sep      string    // Default: a comma
	NoHeader bool      // the first record is a row like the others
	Out      io.Writer // Default: nowhere
	Bar      bool      // draw a bar, for a terminal; else lines
	Importer Importer
	Logger   *slog.Logger // the worker's. Default: none
}

// Summary is what came of it.
type Summary struct {
	Runs, Rows, Bad int64
	Schema          string // where the tables are
}

// session is short, so that a killed process's import goes on soon after the
// next one has started.
const session = 2 * time.Second

// Run imports the file: it starts the run, or finds the one that was started
// for the same file, works, and shows how far it is until it has ended. Killed at any
// moment and called again it goes on from the cursor.
func Run(ctx context.Context, o Options) (Summary, error) {
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	file, err := o.file()
	if err != nil {
		return Summary{}, err
	}
	e, err := engine.New(ctx, o.Pool, engine.Config{
		Workflows: []steps.Definition{o.Importer.Import()}, Name: "csvimport", Session: session, Logger: o.Logger})
	if err != nil {
		return Summary{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := work(ctx, e, cancel)
	defer stop()
	run, err := engine.Start(ctx, e, Import, file, engine.Key(file.Key()))
	if err != nil {
		return Summary{}, err
	}
	stats, err := o.follow(ctx, e, run, file)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return Summary{}, fmt.Errorf("import of %s: %w", file.Path, err)
	}
	return Summary{Runs: 1, Rows: stats.Rows, Bad: stats.Bad, Schema: file.Schema}, nil
}

func (o Options) file() (File, error) {
	if o.Path == "" {
		path, err := Sample()
		if err != nil {
			return File{}, fmt.Errorf("unpacking the sample: %w", err)
		}
		o.Path = path
	}
	return NewFile(o.Path, o.Sep, o.NoHeader)
}

// work has the engine work until stop is called, or ctx ends. What keeps it
// from working is told to failed: nobody should wait for a run then.
func work(ctx context.Context, e *engine.Engine, failed context.CancelCauseFunc) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := e.Work(ctx); err != nil {
			failed(fmt.Errorf("worker: %w", err))
		}
	}()
	return func() { cancel(); <-done }
}

// follow shows the run's progress until it has ended.
func (o Options) follow(ctx context.Context, e *engine.Engine, run engine.Run[Stats], file File) (Stats, error) {
	type result struct {
		stats Stats
		err   error
	}
	ended := make(chan result, 1)
	go func() {
		stats, err := run.Wait(ctx)
		ended <- result{stats, err}
	}()
	fmt.Fprintf(o.Out, "import: run %s of %s into %s.rows\n", run.ID, file.Path, file.Schema)
	m := &meter.Meter{Out: o.Out, Bar: o.Bar, Label: "import", Text: meter.Megabytes}
	defer m.Break()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case r := <-ended:
			if r.err == nil {
				m.Show(file.Size, file.Size)
			}
			return r.stats, r.err
		case <-tick.C:
			info, err := e.Get(ctx, run.ID)
			if err != nil {
				continue // for show only: Wait says what matters
			}
			for _, job := range info.Jobs {
				if job.Step == "rows" && job.Total > 0 {
					m.Show(job.Done, job.Total)
				}
			}
		}
	}
}
