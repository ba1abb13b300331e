package schema_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

type partition struct{ Name, Bound string }

func partitions(t *testing.T, pool *pgxpool.Pool) []partition {
	t.Helper()
	rows, err := pool.Query(context.Background(), `SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = 'pawl.history'::regclass ORDER BY c.relname`)
	if err != nil {
		t.Fatal(err)
	}
	ps, err := pgx.CollectRows(rows, pgx.RowToStructByPos[partition])
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

func drop(t *testing.T, pool *pgxpool.Pool, ps []partition) {
	t.Helper()
	for _, p := range ps {
		exec(t, pool, "DROP TABLE pawl."+pgx.Identifier{p.Name}.Sanitize())
	}
}

var bound = regexp.MustCompile(`^FOR VALUES FROM \('([0-9a-f]{8})-([0-9a-f]{4})-0000-0000-000000000000'\) TO \('([0-9a-f]{8})-([0-9a-f]{4})-0000-0000-000000000000'\)$`)

// TestPartitionBounds: a partition is a day of UTC, whatever the session's
// time zone, one after the other without a gap.
func TestPartitionBounds(t *testing.T) {
	t.Parallel()
	made := pgtest.Pool(t)
	for name, zone := range map[string]string{"far east": "Pacific/Kiritimati", "far west": "Etc/GMT+12", "half": "Asia/Kathmandu"} {
		t.Run(name, func(t *testing.T) {
			config := made.Config()
			config.ConnConfig.RuntimeParams["timezone"] = zone
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			drop(t, pool, partitions(t, pool))
			exec(t, pool, "SELECT pawl.make_partitions(30)")
			ps := partitions(t, pool)
			if len(ps) != 32 { // yesterday, today and thirty more
				t.Fatalf("%d partitions", len(ps))
			}
			today := value[time.Time](t, pool, "SELECT pawl.clock()").UTC().Truncate(24 * time.Hour)
			for i, p := range ps {
				day, err := time.Parse("history_20060102", p.Name)
				if err != nil {
					t.Fatal(err)
				}
				m := bound.FindStringSubmatch(p.Bound)
				if m == nil {
					t.Fatalf("%s is %s", p.Name, p.Bound)
				}
				lo, e1 := strconv.ParseInt(m[1]+m[2], 16, 64)
				hi, e2 := strconv.ParseInt(m[3]+m[4], 16, 64)
				if e1 != nil || e2 != nil || lo != day.UnixMilli() || hi != day.AddDate(0, 0, 1).UnixMilli() {
					t.Errorf("%s is %s", p.Name, p.Bound)
				}
				// Midnight may pass meanwhile.
				if off := int(day.Sub(today)/(24*time.Hour)) - i; off < -1 || off > 0 {
					t.Errorf("partition %d is %s, today %v", i, p.Name, today)
				}
			}
		})
	}
}

func TestMakePartitionsAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	all := partitions(t, pool)
	value[int](t, pool, "SELECT pawl.make_partitions(30)") // had midnight passed since the template was made
	if n := value[int](t, pool, "SELECT pawl.make_partitions(30)"); n != 0 {
		t.Errorf("%d partitions were made again", n)
	}
	dropped := all[3:20]
	drop(t, pool, dropped)
	var mu sync.Mutex
	var made int
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			var n int
			if err := pool.QueryRow(context.Background(), "SELECT pawl.make_partitions(30)").Scan(&n); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			made += n
		})
	}
	calls.Wait()
	if made != len(dropped) {
		t.Errorf("%d of %d partitions were made", made, len(dropped))
	}
	for _, days := range []int{-5, 0, 100_000} {
		if _, err := pool.Exec(t.Context(), "SELECT pawl.make_partitions($1)", days); err != nil {
			t.Errorf("%d days: %v", days, err)
		}
	}
	works(t, pool)
}

// TestNoPartitions: with no partition at all, and none to be had, runs can be
// started; they wait, nothing is lost or dead, and they finish when there are some.
func TestNoPartitions(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pool := pgtest.Pool(t)
	drop(t, pool, partitions(t, pool))
	makes := value[string](t, pool, "SELECT pg_get_functiondef('pawl.make_partitions'::regproc)")
	exec(t, pool, "CREATE OR REPLACE FUNCTION pawl.make_partitions(days integer) RETURNS integer LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not today''; END'")

	ran := make(chan struct{}, 10)
	e, err := engine.New(ctx, pool, engine.Config{Workflows: []steps.Definition{
		sum.Of(steps.New("step", func(_ context.Context, n int) (int, error) { ran <- struct{}{}; return n + 1, nil }))}})
	if err != nil {
		t.Fatal(err)
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- e.Work(working) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	runs := make([]engine.Run[int], 5)
	for i := range runs {
		if runs[i], err = engine.Start(ctx, e, sum, i, engine.Key(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	for range runs {
		select {
		case <-ran:
		case <-ctx.Done():
			t.Fatal("the steps do not run")
		}
	}
	for _, r := range runs {
		if info, err := e.Get(ctx, r.ID); err != nil || info.State != engine.Running {
			t.Errorf("%+v %v", info, err)
		}
	}
	exec(t, pool, makes)
	exec(t, pool, "SELECT pawl.make_partitions(30)")
	for i, r := range runs {
		if out, err := r.Wait(ctx); err != nil || out != i+1 {
			t.Fatal(out, err)
		}
		info, err := e.Get(ctx, r.ID)
		if err != nil || len(info.History) != 1 || info.History[0].Attempt != 1 {
			t.Errorf("its step was done again: %+v %v", info.History, err)
		}
	}
}
