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
func (d *demo) importing() part {
	return part{name: importName, killAt: 0.4, text: meter.Megabytes, progress: func(ctx context.Context) (done, total int64, err error) {
		// The cursor is gone when the step is done.
		err = d.pool.QueryRow(ctx, `
			SELECT CASE WHEN r.outcome IS NULL THEN coalesce(c.done, 0) ELSE 1 END, CASE WHEN r.outcome IS NULL THEN coalesce(c.total, 0) ELSE 1 END
			  FROM pawl.run r LEFT JOIN pawl.job j ON j.shard = r.shard AND j.run_id = r.id
			  LEFT JOIN pawl.cursor c ON c.shard = j.shard AND c.job = j.id
			 WHERE r.workflow = $1`, csvimport.Import.Name()).Scan(&done, &total)
		return done, total, err
	}}
}

// importSample is what the worker process does. Small chunks and a pace, so
// that there is time to see it, and to kill it.
func importSample(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := csvimport.Run(ctx, csvimport.Options{Pool: pool, Importer: csvimport.Importer{Batch: 250, Pace: 40 * time.Millisecond}})
	return err
}
