package engine_test

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// workerRights is all that a worker's role needs, besides CONNECT and what its
// own steps touch. It can neither change what has happened (history, evidence,
// audit), nor the schema: partitions are made by a function of its owner's.
// Starting runs from SQL alone needs pawl.start and what that writes.
var workerRights = []string{
	"USAGE ON SCHEMA pawl",
	"SELECT ON pawl.meta, pawl.version",
	"SELECT, INSERT ON pawl.route, pawl.history, pawl.evidence, pawl.audit",
	"SELECT, INSERT, UPDATE ON pawl.definition, pawl.session, pawl.key, pawl.run",
	"SELECT, INSERT, UPDATE, DELETE ON pawl.job, pawl.cursor",
	"EXECUTE ON ALL FUNCTIONS IN SCHEMA pawl",
}

// TestWorkerRole runs everything as a role that may do nothing else, in a
// schema that belongs to one that is no superuser either.
func TestWorkerRole(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Blank(t)
	admin := envPool(t, dsn)
	database := admin.Config().ConnConfig.Database
	as := func(role string) string { // makes the role, and is its connection string
		name := pgx.Identifier{role}.Sanitize()
		effExec(t, admin, "CREATE ROLE "+name+" LOGIN PASSWORD 'secret' NOSUPERUSER NOCREATEDB NOCREATEROLE")
		t.Cleanup(func() {
			effExec(t, admin, "REASSIGN OWNED BY "+name+" TO CURRENT_USER; DROP OWNED BY "+name+"; DROP ROLE "+name)
		})
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(role, "secret")
		return u.String()
	}
	owner := envPool(t, as(database+"_owner"))
	worker := envPool(t, as(database+"_worker"))
	effExec(t, admin, "GRANT CREATE ON DATABASE "+database+" TO "+database+"_owner")
	if err := engine.Migrate(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	// Nothing by default, so that the list is all there is.
	effExec(t, owner, "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA pawl FROM PUBLIC")
	for _, right := range workerRights {
		effExec(t, owner, "GRANT "+right+" TO "+database+"_worker")
	}
	effExec(t, admin, "CREATE TABLE public.mine (what text)")
	effExec(t, admin, "GRANT INSERT ON public.mine TO "+database+"_worker")

	newest := effScan[string](t, owner, `SELECT max(relname) FROM pg_class WHERE relname LIKE 'history_2%' AND relkind = 'r'`)
	effExec(t, owner, "DROP TABLE pawl."+newest)
	happened := envTour(t, worker, "public.mine")
	if !slices.ContainsFunc(happened, func(h string) bool { return strings.Contains(h, "completed") }) {
		t.Errorf("happened: %q", happened)
	}
	w := steps.Declare[int, int]("maintained")
	work(t, effEngine(t, worker, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("s", same))}}))
	effUntil(t, "the worker made the partition that is missing", func() bool {
		return effScan[bool](t, owner, "SELECT to_regclass('pawl.' || $1) IS NOT NULL", newest)
	})
	for _, forbidden := range []string{
		"DELETE FROM pawl.history", "UPDATE pawl.history SET event = event", "DELETE FROM pawl.run", "DELETE FROM pawl.audit",
		"UPDATE pawl.meta SET shards = 2", "CREATE TABLE pawl.mine ()", "DELETE FROM pawl.key",
	} {
		if _, err := worker.Exec(context.Background(), forbidden); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s: %v", forbidden, err)
		}
	}
}
