package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// noteDelays has the database itself note when a job is due after each of its
// transitions: by the time a test looks, a short delay may be over and the row
// be another.
func noteDelays(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	effExec(t, pool, "CREATE TABLE public.delays (run_id uuid, token bigint, due_at timestamptz, PRIMARY KEY (run_id, token))")
	effExec(t, pool, `CREATE FUNCTION public.note_delay() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN INSERT INTO public.delays VALUES (NEW.run_id, NEW.token, NEW.due_at); RETURN NULL; END'`)
	effExec(t, pool, `CREATE TRIGGER note_delay AFTER UPDATE ON pawl.job FOR EACH ROW
		WHEN (NEW.token <> OLD.token AND NEW.state IN ('pending', 'uncertain')) EXECUTE FUNCTION public.note_delay()`)
}

// forPerson is the delay of what a person must settle.
const forPerson time.Duration = -1

// delays are those after a run's transitions with that event, oldest first:
// exactly what was written, by the rows' own times.
func delays(t testing.TB, pool *pgxpool.Pool, id, event string) []time.Duration {
	t.Helper()
	rows, err := pool.Query(context.Background(), `
		SELECT CASE WHEN d.due_at = 'infinity' THEN NULL ELSE (extract(epoch FROM d.due_at - h.ended_at) * 1000000)::bigint END
		  FROM pawl.history h JOIN public.delays d ON d.run_id = h.run_id AND d.token = h.token
		 WHERE h.run_id = $1 AND h.event = $2 ORDER BY h.token`, id, event)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (time.Duration, error) {
		var us *int64
		if err := r.Scan(&us); err != nil || us == nil {
			return forPerson, err
		}
		return time.Duration(*us) * time.Microsecond, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// spreadUpTo tells of delays that are not random between zero and a limit.
// Of twenty, chance alone would say so twice in a million times.
func spreadUpTo(t testing.TB, what string, ds []time.Duration, limit time.Duration) {
	t.Helper()
	low, high := 0, 0
	for _, d := range ds {
		switch {
		case d < 0 || d > limit:
			t.Errorf("%s: a delay of %v, not of %v at most", what, d, limit)
		case d <= limit/2:
			low++
		default:
			high++
		}
	}
	if low == 0 || high == 0 {
		t.Errorf("%s: of %d delays %d are in the lower half of %v and %d in the upper: %v", what, len(ds), low, limit, high, ds)
	}
}

// hurryAll makes all that waits for a time due now.
func hurryAll(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	effExec(t, pool, "UPDATE pawl.job SET due_at = pawl.now() WHERE state IN ('pending', 'uncertain') AND due_at > pawl.now() AND due_at < 'infinity'")
	effExec(t, pool, "SELECT pg_notify('pawl', 'c'), pg_notify('pawl', 'w')")
}
