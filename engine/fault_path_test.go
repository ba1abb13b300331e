package engine_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
)

// A search_path with functions of other result types: the statements are
// parsed before the batch's set_config has run.
func TestFaultSearchPathTypes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string][2]string{
		"public, implicit catalog": {"public", `
CREATE FUNCTION public.unnest(bigint[]) RETURNS SETOF text LANGUAGE sql AS 'SELECT ''evil''::text';
CREATE FUNCTION public.unnest(uuid[]) RETURNS SETOF text LANGUAGE sql AS 'SELECT ''evil''::text';
CREATE FUNCTION public.unnest(bytea[]) RETURNS SETOF text LANGUAGE sql AS 'SELECT ''evil''::text';
CREATE FUNCTION public.unnest(integer[]) RETURNS SETOF text LANGUAGE sql AS 'SELECT ''evil''::text';
CREATE FUNCTION public.cardinality(bigint[]) RETURNS text LANGUAGE sql AS 'SELECT ''evil''::text';`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Blank(t)
			admin := envPool(t, dsn)
			effExec(t, admin, c[1])
			effExec(t, admin, "CREATE TABLE public.mine (what text)")
			if err := engine.Migrate(context.Background(), admin); err != nil {
				t.Fatal(err)
			}
			effExec(t, admin, fmt.Sprintf("ALTER DATABASE %s SET search_path = %s", pgx.Identifier{admin.Config().ConnConfig.Database}.Sanitize(), c[0]))
			pool := envPool(t, dsn)
			t.Log(effScan[string](t, pool, "SELECT pg_catalog.current_setting('search_path')"))
			got := envTour(t, pool, "public.mine")
			t.Logf("%q", got)
		})
	}
}
