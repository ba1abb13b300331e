-- name: Register :one
-- Stores a graph. It starts runs only once it is activated, since their first job needs a route.
INSERT INTO pawl.definition AS d (workflow, hash, graph, queue, active_at)
VALUES (@workflow, @hash, @graph, @queue, '-infinity')
ON CONFLICT (workflow, hash) DO UPDATE SET workflow = excluded.workflow
RETURNING d.id;

-- name: Activate :exec
-- New runs get the definition activated last.
UPDATE pawl.definition SET active_at = pawl.clock(), queue = @queue, settings = @settings::json WHERE id = @id;

-- name: MakeRoutes :exec
-- A route for each queue and priority of a definition.
INSERT INTO pawl.route (definition, queue, priority)
SELECT @definition::bigint, q.queue, p.priority::smallint
  FROM (SELECT pg_catalog.unnest(@queues::text[]) AS queue) q, (SELECT pg_catalog.generate_series(0, 3) AS priority) p
 ORDER BY q.queue, p.priority
ON CONFLICT DO NOTHING;

-- name: Definitions :many
-- Every graph that runs of these workflows may have started with.
SELECT d.id, d.workflow, d.graph FROM pawl.definition d WHERE d.workflow = ANY (@workflows::text[]) ORDER BY d.id;

-- name: DefinitionByID :one
SELECT d.id, d.workflow, d.graph FROM pawl.definition d WHERE d.id = @id;

-- name: Routes :many
SELECT r.id, r.definition, r.queue, r.priority FROM pawl.route r WHERE r.definition = ANY (@definitions::bigint[]) ORDER BY r.id;

-- name: DefinitionsToShow :many
-- All graphs, or those named, with what is known of their steps.
SELECT d.id, d.workflow, d.graph, d.settings::text AS settings, d.active_at > '-infinity' AS active, greatest(d.active_at, '0001-01-01 00:00:00+00')::timestamptz AS active_at
  FROM pawl.definition d WHERE pg_catalog.cardinality(@ids::bigint[]) = 0 OR d.id = ANY (@ids::bigint[]) ORDER BY d.workflow, d.active_at DESC, d.id DESC;
