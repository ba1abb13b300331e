package demo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/examples/import/csvimport"
	"github.com/pawlworks/pawl/examples/import/meter"
)

const importName = "import"

// importing is the part that imports the sample.
func (d *demo) importing() (part, error) {
	file, err := sample()
	return part{name: importName, killAt: 0.4, text: meter.Megabytes, progress: func(ctx context.Context) (done, total int64, err error) {
		// The cursor is gone when the step is done.
		err = d.pool.QueryRow(ctx, `
			SELECT CASE WHEN r.outcome IS NULL THEN coalesce(c.done, 0) ELSE $2 END
			  FROM pawl.run r LEFT JOIN pawl.job j ON j.shard = r.shard AND j.run_id = r.id
			  LEFT JOIN pawl.cursor c ON c.shard = j.shard AND c.job = j.id
			 WHERE r.workflow = $1`, csvimport.Import.Name(), file.Size).Scan(&done)
		return done, file.Size, err
	}}, err
}

// sample is the file that is imported.
func sample() (csvimport.File, error) {
	path, err := csvimport.Sample()
	if err != nil {
		return csvimport.File{}, err
	}
	return csvimport.NewFile(path, "", false)
}

// importSample is what the worker process does. Small chunks and a pace, so
// that there is time to see it, and to kill it.
func importSample(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := csvimport.Run(ctx, csvimport.Options{Pool: pool, Importer: csvimport.Importer{Batch: 250, Pace: 40 * time.Millisecond}})
	return err
}
