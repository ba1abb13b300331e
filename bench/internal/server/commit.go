package server

import (
	"bytes"
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawlworks/pawl/bench/internal/meter"
)

type exec = func(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)

// Commits times n commits of one row of 200 bytes, each an INSERT by itself:
// what no durable step can be faster than alone.
func Commits(ctx context.Context, do exec, n int, times *meter.Times) error {
	if _, err := do(ctx, "CREATE TABLE IF NOT EXISTS public.bench_commit (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload bytea)"); err != nil {
		return err
	}
	payload := bytes.Repeat([]byte{'x'}, 200)
	for range n {
		began := time.Now()
		if _, err := do(ctx, "INSERT INTO public.bench_commit (payload) VALUES ($1)", payload); err != nil {
			return err
		}
		times.Add(time.Since(began))
	}
	return nil
}
