package csvimport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawlworks/pawl/steps"
)

// Layout is what "prepare" hands to "rows": the tables' columns, and where
// the rows begin.
type Layout struct {
	Columns []string
	Off     int64
	Line    int64
}

// prepare makes the tables from the header. It is a transactional step: they
// are there if, and only if, the step is done.
func (im *Importer) prepare(ctx context.Context, tx pgx.Tx, f File) (Layout, error) {
	layout, err := readLayout(f)
	if err != nil {
		return Layout{}, err
	}
	err = createTables(ctx, tx, f.Schema, layout.Columns)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42P06" { // duplicate_schema: made by somebody else
		return Layout{}, steps.Permanent("SCHEMA_EXISTS", err)
	}
	return layout, err
}

func readLayout(f File) (Layout, error) {
	r, err := openAt(f, 0, 0, 0)
	if err != nil {
		return Layout{}, err
	}
	defer r.close()
	rec, err := r.records.next()
	if err == io.EOF {
		return Layout{}, steps.Permanent("NO_HEADER", errors.New("the file is empty: its first record would name the columns"))
	}
	if err != nil {
		return Layout{}, err
	}
	header, bad := rec.fields(r.records.sep)
	if bad != "" {
		return Layout{}, steps.Permanent("BAD_HEADER", fmt.Errorf("the first record of %s: %s", f.Path, bad))
	}
	layout := Layout{Off: r.records.off, Line: r.records.line}
	if f.NoHeader {
		header, layout = make([]string, len(header)), Layout{} // no names, and the rows begin here
	}
	if layout.Columns, err = columnNames(header); err != nil {
		return Layout{}, steps.Permanent("BAD_HEADER", err)
	}
	return layout, nil
}

// createTables makes schema.rows, a row a record with its line's number, and
// schema.bad, which keeps what could not become one.
func createTables(ctx context.Context, tx pgx.Tx, schema string, columns []string) error {
	name := pgx.Identifier{schema}.Sanitize()
	var list strings.Builder
	for _, c := range columns {
		fmt.Fprintf(&list, ", %s text NOT NULL", pgx.Identifier{c}.Sanitize())
	}
	_, err := tx.Exec(ctx, fmt.Sprintf(`
		CREATE SCHEMA %[1]s;
		CREATE TABLE %[1]s.rows (line bigint PRIMARY KEY%[2]s);
		CREATE TABLE %[1]s.bad (line bigint PRIMARY KEY, off bigint NOT NULL, size bigint NOT NULL, reason text NOT NULL, raw bytea NOT NULL)`,
		name, list.String()))
	return err
}
