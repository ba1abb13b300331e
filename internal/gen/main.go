// Command gen runs sqlc against a throw-away database with the schema in it:
// sqlc asks the server itself what a query's parameters and columns are.
//
//	go run ./internal/gen           writes the code anew
//	go run ./internal/gen diff      fails if the code is not what would be written
//	go run ./internal/gen vet       has the server prepare every query
//
// The module's doc.go has it run by go generate:
//
//	//go:generate go run ./internal/gen generate
//
// sqlc.yaml takes the database's address from PAWL_SQLC_URI. PAWL_SQLC names a
// binary to use instead of building the pinned version, which takes minutes
// the first time.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/pawlworks/pawl/internal/pglocal"
	"github.com/pawlworks/pawl/schema"
)

const sqlc = "github.com/sqlc-dev/sqlc/cmd/sqlc@v1.31.1"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	if len(args) == 0 {
		args = []string{"generate"}
	}
	if len(args) != 1 || !slices.Contains([]string{"generate", "diff", "vet"}, args[0]) {
		return errors.New("usage: gen [generate | diff | vet]")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	server, err := pglocal.Start(ctx, pglocal.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	if err := migrate(ctx, server.URL("postgres")); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "run", sqlc, args[0])
	if binary := os.Getenv("PAWL_SQLC"); binary != "" {
		cmd = exec.CommandContext(ctx, binary, args[0])
	}
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "PAWL_SQLC_URI="+server.URL("postgres"))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("sqlc %s: %w", args[0], err)
	}
	return nil
}

func migrate(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(schema.Migrate(ctx, conn), conn.Close(ctx))
}

// moduleRoot is where sqlc.yaml lies; go generate runs us in a package's
// directory.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}
