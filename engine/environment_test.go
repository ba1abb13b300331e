package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// evilObjects have the names of the schema's tables and functions.
const evilObjects = `
CREATE SCHEMA evil;
CREATE TABLE evil.meta (one boolean, shards smallint, oldest_code integer); CREATE TABLE evil.version (version integer);
INSERT INTO evil.meta VALUES (true, 7, 99); INSERT INTO evil.version VALUES (99);
CREATE TABLE evil.run (id integer); CREATE TABLE evil.job (id integer); CREATE TABLE evil.history (id integer);
CREATE TABLE evil.definition (id integer); CREATE TABLE evil.route (id integer); CREATE TABLE evil.session (id integer);
CREATE TABLE evil.key (id integer); CREATE TABLE evil.cursor (id integer); CREATE TABLE evil.evidence (id integer); CREATE TABLE evil.audit (id integer);
CREATE FUNCTION evil.no() RETURNS integer LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''a function of the user was called''; END';
CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE sql AS $$SELECT '1999-01-01'::timestamptz + evil.no() * interval '1 s'$$;
CREATE FUNCTION evil.clock() RETURNS timestamptz LANGUAGE sql AS $$SELECT '1999-01-01'::timestamptz + evil.no() * interval '1 s'$$;
CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$SELECT '1999-01-01'::timestamptz + evil.no() * interval '1 s'$$;
CREATE FUNCTION evil.after(timestamptz, bigint) RETURNS timestamptz LANGUAGE sql AS $$SELECT $1 + evil.no() * interval '1 s'$$;
CREATE FUNCTION evil.shard_of(text, smallint) RETURNS smallint LANGUAGE sql AS 'SELECT evil.no()::smallint';
`

// evilShadows hide PostgreSQL's own functions and operators, where the user's
// schema comes first.
const evilShadows = `
CREATE FUNCTION evil.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS 'SELECT evil.no()::pg_catalog.text';
CREATE FUNCTION evil.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'SELECT evil.no()';
CREATE FUNCTION evil.sha256(bytea) RETURNS bytea LANGUAGE sql AS $$SELECT evil.no()::pg_catalog.text::pg_catalog.bytea$$;
CREATE FUNCTION evil.convert_to(text, name) RETURNS bytea LANGUAGE sql AS $$SELECT evil.no()::pg_catalog.text::pg_catalog.bytea$$;
CREATE FUNCTION evil.convert_from(bytea, name) RETURNS text LANGUAGE sql AS $$SELECT evil.no()::pg_catalog.text$$;
CREATE FUNCTION evil.to_hex(bigint) RETURNS text LANGUAGE sql AS 'SELECT evil.no()::pg_catalog.text';
CREATE FUNCTION evil.to_hex(integer) RETURNS text LANGUAGE sql AS 'SELECT evil.no()::pg_catalog.text';
CREATE FUNCTION evil.lpad(text, integer, text) RETURNS text LANGUAGE sql AS 'SELECT evil.no()::pg_catalog.text';
CREATE FUNCTION evil.gen_random_uuid() RETURNS uuid LANGUAGE sql AS 'SELECT evil.no()::pg_catalog.text::pg_catalog.uuid';
CREATE FUNCTION evil.random() RETURNS float8 LANGUAGE sql AS 'SELECT evil.no()::pg_catalog.float8';
CREATE FUNCTION evil.unnest(anyarray) RETURNS SETOF anyelement LANGUAGE plpgsql AS 'BEGIN PERFORM evil.no(); END';
CREATE FUNCTION evil.cardinality(anyarray) RETURNS integer LANGUAGE sql AS 'SELECT evil.no()';
CREATE FUNCTION evil.to_regclass(text) RETURNS regclass LANGUAGE sql AS 'SELECT evil.no()::pg_catalog.regclass';
CREATE FUNCTION evil.format(text, text) RETURNS text LANGUAGE sql AS 'SELECT evil.no()::pg_catalog.text';
CREATE FUNCTION evil.octet_length(bytea) RETURNS integer LANGUAGE sql AS 'SELECT evil.no()';
CREATE FUNCTION evil.hashtextextended(text, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT evil.no()::bigint';
CREATE FUNCTION evil.pg_advisory_lock(bigint) RETURNS void LANGUAGE sql AS 'SELECT evil.no()';
CREATE FUNCTION evil.eq(uuid, uuid) RETURNS boolean LANGUAGE sql AS 'SELECT evil.no() = 1';
CREATE FUNCTION evil.eq(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT evil.no() = 1';
CREATE FUNCTION evil.le(timestamptz, timestamptz) RETURNS boolean LANGUAGE sql AS 'SELECT evil.no() = 1';
CREATE OPERATOR evil.= (FUNCTION = evil.eq, LEFTARG = uuid, RIGHTARG = uuid);
CREATE OPERATOR evil.= (FUNCTION = evil.eq, LEFTARG = text, RIGHTARG = text);
CREATE OPERATOR evil.<= (FUNCTION = evil.le, LEFTARG = timestamptz, RIGHTARG = timestamptz);
`

// TestEnvironment runs all that the engine does under settings that a
// database, a role or a pool may have. Nothing that happens may differ.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	plain := pgtest.Blank(t)
	if err := engine.Migrate(t.Context(), envPool(t, plain)); err != nil {
		t.Fatal(err)
	}
	setup := envPool(t, plain)
	effExec(t, setup, "CREATE TABLE public.mine (what text)")
	want := envTour(t, envPool(t, plain), "public.mine")
	if len(want) < 10 {
		t.Fatalf("only %q happened", want)
	}

	for name, c := range map[string]struct {
		before   string            // run before the schema is made
		database map[string]string // ALTER DATABASE … SET
		params   map[string]string // of the pool's connections
	}{
		"search path":            {before: evilObjects, database: map[string]string{"search_path": "evil, public"}},
		"search path, shadowing": {before: evilObjects + evilShadows, database: map[string]string{"search_path": "evil, public, pg_catalog"}},
		"time zone":              {params: map[string]string{"timezone": "Pacific/Kiritimati", "datestyle": "SQL, DMY", "intervalstyle": "sql_standard"}},
		"serializable":           {database: map[string]string{"default_transaction_isolation": "serializable"}},
		"repeatable read":        {params: map[string]string{"default_transaction_isolation": "repeatable read"}},
		"escapes":                {database: map[string]string{"standard_conforming_strings": "off", "escape_string_warning": "off", "bytea_output": "escape"}},
		"read only":              {database: map[string]string{"default_transaction_read_only": "on"}},
		"deferrable":             {params: map[string]string{"default_transaction_deferrable": "on", "row_security": "off", "extra_float_digits": "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Blank(t)
			admin := envPool(t, dsn)
			if c.before != "" {
				effExec(t, admin, c.before)
			}
			effExec(t, admin, "CREATE TABLE public.mine (what text)")
			for k, v := range c.database {
				if k != "search_path" {
					v = "'" + v + "'"
				}
				effExec(t, admin, fmt.Sprintf("ALTER DATABASE %s SET %s = %s", pgx.Identifier{admin.Config().ConnConfig.Database}.Sanitize(), k, v))
			}
			pool := envPool(t, dsn, func(p *pgxpool.Config) { maps.Copy(p.ConnConfig.RuntimeParams, c.params) })
			for k, v := range c.database {
				if got := effScan[string](t, pool, "SELECT pg_catalog.current_setting($1)", k); got != v {
					t.Fatalf("%s is %q, not %q", k, got, v)
				}
			}
			if err := engine.Migrate(context.Background(), pool); err != nil {
				t.Fatal(err)
			}
			if got := envTour(t, pool, "public.mine"); !slices.Equal(got, want) {
				t.Errorf("happened:\n%q\nwant\n%q", got, want)
			}
			if n := effScan[int](t, admin, "SELECT count(*) FROM public.mine"); n != 4 {
				t.Errorf("%d rows of the user's", n)
			}
			startAtOnce(t, pool)
		})
	}
}

// startAtOnce has many callers start the same keys at the same time, and
// cancel what they get: statements that meet, and must not see each other as a
// failure to serialize.
func startAtOnce(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	e := envEngine(t, pool, engine.Config{Workflows: tourWorkflows("public.mine")})
	var mu sync.Mutex
	ids := map[string]map[string]bool{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for k := range 15 {
				key := fmt.Sprint("at once ", k)
				r, err := engine.Start(context.Background(), e, sights, key, engine.Key(key), engine.After(time.Hour))
				if err != nil {
					t.Error(err)
					return
				}
				if err := e.Cancel(context.Background(), r.ID, tourBy); err != nil && !errors.Is(err, engine.ErrState) {
					t.Error(err)
				}
				mu.Lock()
				if ids[key] == nil {
					ids[key] = map[string]bool{}
				}
				ids[key][r.ID] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for key, runs := range ids {
		if len(runs) != 1 {
			t.Errorf("key %q started %d runs", key, len(runs))
		}
	}
}

// TestTwoEnginesAreTwoOwners: engines that share a process, a pool and a name
// share nothing else: each leases for itself, and one's end is not the other's.
func TestTwoEnginesAreTwoOwners(t *testing.T) {
	t.Parallel()
	pool := envPool(t, pgtest.Database(t), func(c *pgxpool.Config) { c.MaxConns = 10 })
	var calls [2]atomic.Int64
	var engines [2]*engine.Engine
	gate := make(chan struct{})
	for i := range engines {
		engines[i] = envEngine(t, pool, engine.Config{Name: "same", Slots: 5, Workflows: []steps.Definition{
			awaited.Of(steps.New("step", func(ctx context.Context, n int) (int, error) { calls[i].Add(1); <-gate; return n, nil }))}})
	}
	runs, err := engine.StartMany(t.Context(), engines[0], awaited, make([]int, 10))
	if err != nil {
		t.Fatal(err)
	}
	stop := [2]func(){work(t, engines[0]), work(t, engines[1])}
	effUntil(t, "both have their slots full", func() bool { return calls[0].Load() == 5 && calls[1].Load() == 5 })
	if n := effScan[int](t, pool, "SELECT count(DISTINCT owner) FROM pawl.job WHERE state = 'running'"); n != 2 {
		t.Errorf("%d owners", n)
	}
	close(gate)
	for _, r := range runs {
		effSuccess(t, engines[1], r)
	}
	stop[0]()
	if out := effSuccess(t, engines[0], effStart(t, engines[0], awaited, 3)); out != 3 || calls[1].Load() < 6 {
		t.Errorf("got %d; the other engine had %d calls", out, calls[1].Load())
	}
	if n := effScan[int](t, pool, "SELECT count(*) FROM pawl.session WHERE name = 'same' AND closed_at IS NULL"); n != 1 {
		t.Errorf("%d open sessions", n)
	}
}
