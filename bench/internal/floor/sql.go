package floor

import _ "embed"

const (
	sqlDefinition = `INSERT INTO pawl.definition AS d (workflow, hash, graph, queue, active_at) VALUES ($1, sha256($2::bytea), $2, 'default', clock_timestamp())
		ON CONFLICT (workflow, hash) DO UPDATE SET workflow = excluded.workflow RETURNING d.id`
	sqlRoutes = `INSERT INTO pawl.route (definition, queue, priority) SELECT $1, 'default', p FROM generate_series(0, 3) AS p ON CONFLICT DO NOTHING`
	// The session never lapses: nobody renews it.
	sqlSession = `INSERT INTO pawl.session (id, name, routes, floors, started_at, expires_at)
		VALUES ($1, 'floor', $2, $3, clock_timestamp(), clock_timestamp() + interval '1 day')`
	sqlStart = `WITH r AS (
		  INSERT INTO pawl.run (shard, id, workflow, definition, key, ordering, generation, priority, tags, traceparent, tracestate, encoding, input, created_at)
		  VALUES (0, $1, $2, $3, NULL, '', 1, 1, '{}', '', '', 'json', $4, clock_timestamp()) RETURNING id)
		INSERT INTO pawl.job (shard, run_id, route, due_at) SELECT 0, r.id, $5, clock_timestamp() FROM r`
)

//go:embed claim.sql
var sqlClaim string

//go:embed transition.sql
var sqlTransition string

//go:embed recover.sql
var sqlRecover string
