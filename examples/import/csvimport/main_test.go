package csvimport_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/examples/import/csvimport"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// The test binary is its own worker: with this variable set it works on the
// database of that URL until it is killed or its standard input ends.
const (
	workVariable = "PAWL_TEST_IMPORT_WORK"
	paceVariable = "PAWL_TEST_IMPORT_PACE"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(workVariable); url != "" {
		if err := work(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(pgtest.Main(m))
}

func work(url string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	pace, err := time.ParseDuration(os.Getenv(paceVariable))
	if err != nil {
		return err
	}
	im := &csvimport.Importer{Batch: 100, Pace: pace}
	e, err := engine.New(ctx, pool, engine.Config{
		Workflows: []steps.Definition{im.Import()}, Session: time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with whoever started this process
		cancel()
	}()
	return e.Work(ctx)
}
