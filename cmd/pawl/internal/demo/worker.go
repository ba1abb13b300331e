package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	orderdemo "github.com/pawlworks/pawl/examples/order/demo"
	"github.com/pawlworks/pawl/internal/otelsetup"
)

// workerArg makes the program a worker of the demo's; what it works on comes
// in the environment, where the password is not for everybody to see.
const (
	workerArg        = "pawl-demo-worker"
	databaseVariable = "PAWL_DEMO_DATABASE"
	providerVariable = "PAWL_DEMO_PROVIDER"
	ordersVariable   = "PAWL_DEMO_ORDERS"
)

var errKilled = errors.New("the worker process was killed")

// worker is a process that works.
type worker struct {
	cmd   *exec.Cmd
	stdin io.Closer // its end tells the worker that we are gone

	ended chan struct{}
	err   error // once it has ended
}

func (d *demo) startWorker(name string) (*worker, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, workerArg, name)
	cmd.Env = append(os.Environ(), databaseVariable+"="+d.data.url, providerVariable+"="+d.provider.URL,
		ordersVariable+"="+strconv.Itoa(d.options.Orders))
	cmd.Stderr = d.options.ErrOut
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w := &worker{cmd: cmd, stdin: stdin, ended: make(chan struct{})}
	go func() {
		w.err = w.outcome(cmd.Wait())
		close(w.ended)
	}()
	return w, nil
}

func (w *worker) pid() int { return w.cmd.Process.Pid }

// kill ends the worker as a machine does that loses power: it can say nothing.
func (w *worker) kill() { _ = w.cmd.Process.Kill() }

// drain asks the worker to finish or hand back what it holds.
func (w *worker) drain() {
	if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
		w.kill() // a system without signals, or it has ended
	}
}

func (w *worker) outcome(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() < 0 { // by a signal
		return errKilled
	}
	if err != nil {
		return fmt.Errorf("the worker process failed: %w", err)
	}
	return nil
}

// Child is a process of the demo's own, if this process was started to be one:
// then ok is true, it has ended, and the program exits with the code. Call it first
// in main.
func Child() (code int, ok bool) {
	if code, ok := orderdemo.Child(); ok {
		return code, true
	}
	if len(os.Args) != 3 || os.Args[1] != workerArg {
		return 0, false
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // whoever started us is gone, and the server with him
	}()
	if err := otelsetup.Main(ctx, func(ctx context.Context) error { return work(ctx, os.Args[2]) }); err != nil {
		if ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "pawl demo: worker:", err)
		}
		return 1, true
	}
	return 0, true
}

func work(ctx context.Context, name string) error {
	config, err := pgxpool.ParseConfig(os.Getenv(databaseVariable))
	if err != nil {
		return err
	}
	config.MaxConns = 20 // transactional steps hold one each
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	switch name {
	case ordersName:
		return fulfil(ctx, pool)
	case importName:
		return importSample(ctx, pool)
	}
	return fmt.Errorf("there is no part %q", name)
}
