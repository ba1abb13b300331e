package csvimport

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ShowBad lists the first records that could not become rows, by their place
// in the file.
func ShowBad(ctx context.Context, pool *pgxpool.Pool, out io.Writer, schema string, most int) error {
	rows, err := pool.Query(ctx, "SELECT line, off, size, reason FROM "+pgx.Identifier{schema, "bad"}.Sanitize()+" ORDER BY line LIMIT $1", most)
	if err != nil {
		return err
	}
	var line, off, size int64
	var reason string
	_, err = pgx.ForEachRow(rows, []any{&line, &off, &size, &reason}, func() error {
		_, err := fmt.Fprintf(out, "  line %d (%d bytes at %d): %s\n", line, size, off, reason)
		return err
	})
	return err
}
