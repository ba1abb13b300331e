package shop

import (
	"context"
	_ "embed" // for the tables
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed tables.sql
var tables string

// Setup makes the shop's tables and fills its stock, where that has not been
// done. Processes that do so at once wait for each other: IF NOT EXISTS alone
// is no lock.
func Setup(ctx context.Context, pool *pgxpool.Pool) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext('pawl example shop'))`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, tables)
		return err
	})
	if err != nil {
		return fmt.Errorf("shop: making the tables: %w", err)
	}
	return nil
}
