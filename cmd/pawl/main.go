// Command pawl is the operator's command.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/pawlworks/pawl/cmd/pawl/internal/demo"
)

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // what was asked for did not happen, or something is wrong
	exitUsage  = 2 // it could not be understood
)

func main() {
	if code, ok := demo.Child(); ok { // the demo's own processes
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command is one of the subcommands.
type command struct {
	name, args, about string
	run               func(ctx context.Context, c *call) error
}

var commands = []command{
	{"demo", "[-headless] [-fresh] [-data DIR] [-orders N]", "run the examples on a PostgreSQL of their own, and tell what happens", runDemo},
	{"migrate", "[-database URL] | -sql FROM TO", "bring the schema to this release's version, or print the SQL that does", runMigrate},
	{"status", "[-json] [-all]", "is it well, since when; what is dead, uncertain, taken by nobody; workers, queues, the database.\n        Exit code 1: something needs a person", runStatus},
	{"list", "[-json] [-workflow W] [-state S] [-step S] [-code C] [-key K] [-tag T] [-since T] [-until T]\n            [-limit N] [-before RUN]", "runs, newest first", runList},
	{"show", "[-json] [-payloads] [-workflow W] RUN|KEY", "all about one run: its timeline, its errors, what happens next and when", runShow},
	{"settings", "[-json] [-all] [-workflow W]", "the effective settings of every step; what is a default is marked", runSettings},
	{"tail", "[-json] [-workflow W] [-run RUN|KEY] [-since T]", "transitions as they are committed, until Ctrl-C", runTail},
	{"doctor", "[-database URL]", "look for what must never be there, and print it", runDoctor},
}

// call is one call of a subcommand.
type call struct {
	flags       *flag.FlagSet
	args        []string // those not parsed yet
	out, errOut io.Writer
}

// usageError is told together with how to do it right.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run runs a command line and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	if len(args) == 0 {
		usage(errOut)
		return exitUsage
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		usage(out)
		return exitOK
	}
	for _, cmd := range commands {
		if cmd.name == args[0] {
			return cmd.call(ctx, args[1:], out, errOut)
		}
	}
	fmt.Fprintf(errOut, "pawl: there is no command %q\n", args[0])
	usage(errOut)
	return exitUsage
}

func (cmd command) call(ctx context.Context, args []string, out, errOut io.Writer) int {
	c := &call{flags: flag.NewFlagSet(cmd.name, flag.ContinueOnError), args: args, out: out, errOut: errOut}
	c.flags.SetOutput(io.Discard) // errors are told below, once
	err := cmd.run(ctx, c)
	var wrong usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		cmd.usage(out, c.flags)
		return exitOK
	case errors.As(err, &wrong):
		fmt.Fprintf(errOut, "pawl %s: %v\n", cmd.name, err)
		cmd.usage(errOut, c.flags)
		return exitUsage
	case !errors.Is(err, errTold):
		fmt.Fprintf(errOut, "pawl %s: %v\n", cmd.name, err)
	}
	return exitFailed
}

// errTold is for failures that were printed already.
var errTold = errors.New("told already")

// parse reads the flags that were declared; what is left stands in flags.Args.
func (c *call) parse() error {
	err := c.flags.Parse(c.args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		return usageError{err}
	}
	return err
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "usage: pawl COMMAND [flags]")
	for _, cmd := range commands {
		fmt.Fprintf(w, "  pawl %s %s\n        %s\n", cmd.name, cmd.args, cmd.about)
	}
	fmt.Fprintln(w, "All but demo take -database URL, or read it from $"+databaseVariable+".")
	fmt.Fprintln(w, "Exit codes: 0 done, 1 failed or something is wrong, 2 not understood. More: pawl COMMAND -h")
}

func (cmd command) usage(w io.Writer, flags *flag.FlagSet) {
	fmt.Fprintf(w, "usage: pawl %s %s\n%s\n", cmd.name, cmd.args, cmd.about)
	flags.SetOutput(w)
	flags.PrintDefaults()
}
