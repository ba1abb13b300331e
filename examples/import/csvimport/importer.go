package csvimport

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/steps"
)

// Importer has the steps. The zero value is ready.
type Importer struct {
	Batch int           // records a chunk. Default: 1000
	Pace  time.Duration // least time a chunk, to spare a database that has other work. Default: none
}

// Pos is the cursor: where the next record begins, and the counters, which so
// survive a kill too.
type Pos struct {
	Off  int64
	Line int64 // lines before Off
	Stats
}

// source is the input of "rows".
type source struct {
	File   File
	Layout Layout
}

// Import is the definition.
func (im *Importer) Import() steps.Definition {
	prepare := steps.NewTx("prepare", im.prepare)
	rows := steps.NewLong("rows", im.rows, steps.Lease(time.Minute), steps.MaxRuntime(6*time.Hour))
	return Import.Define(func(f *steps.Flow, file steps.Ref[File]) steps.Ref[Stats] {
		layout := prepare.Do(f, file)
		return rows.Do(f, steps.Map2(file, layout, func(f File, l Layout) source { return source{f, l} }))
	})
}

// rows copies the file from the cursor on.
func (im *Importer) rows(ctx context.Context, src source, cur *steps.Cursor[Pos]) (Stats, error) {
	p := cur.At()
	if p.Off == 0 { // the first attempt
		p.Off, p.Line = src.Layout.Off, src.Layout.Line
	}
	r, err := openAt(src.File, p.Off, p.Line, len(src.Layout.Columns))
	if err != nil {
		return Stats{}, err
	}
	defer r.close()
	pace := newPace(im.Pace)
	defer pace.stop()
	for b := range r.batches(im.batch()) {
		if err := pace.wait(ctx); err != nil {
			return Stats{}, err
		}
		if err := r.unchanged(); err != nil {
			return Stats{}, err
		}
		p.Off, p.Line = b.off, b.line
		p.Rows += int64(len(b.rows))
		p.Bad += int64(len(b.bad))
		cur.Progress(p.Off, src.File.Size)
		if err := cur.CommitTx(ctx, p, func(tx pgx.Tx) error {
			return insert(ctx, tx, src.File.Schema, src.Layout.Columns, b)
		}); err != nil {
			return Stats{}, err // lease lost, cancelled, drained: just return
		}
	}
	return p.Stats, r.err
}

func (im *Importer) batch() int {
	if im.Batch > 0 {
		return im.Batch
	}
	return 1000
}

func insert(ctx context.Context, tx pgx.Tx, schema string, columns []string, b batch) error {
	_, err := tx.CopyFrom(ctx, pgx.Identifier{schema, "rows"}, append([]string{"line"}, columns...),
		pgx.CopyFromSlice(len(b.rows), func(i int) ([]any, error) {
			values := make([]any, 0, 1+len(columns))
			values = append(values, b.rows[i].line)
			for _, v := range b.rows[i].values {
				values = append(values, v)
			}
			return values, nil
		}))
	if err != nil || len(b.bad) == 0 {
		return err
	}
	_, err = tx.CopyFrom(ctx, pgx.Identifier{schema, "bad"}, []string{"line", "off", "size", "reason", "raw"},
		pgx.CopyFromSlice(len(b.bad), func(i int) ([]any, error) {
			bad := b.bad[i]
			return []any{bad.line, bad.off, bad.size, bad.reason, bad.raw}, nil
		}))
	return err
}
