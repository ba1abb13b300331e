-- name: Register :one
-- Activates a definition: new runs get the one activated last.
INSERT INTO pawl.definition AS d (workflow, hash, graph, queue, active_at)
VALUES (@workflow, @hash, @graph, @queue, pawl.clock())
ON CONFLICT (workflow, hash) DO UPDATE SET active_at = greatest(d.active_at, excluded.active_at)
RETURNING d.id;

-- name: MakeRoutes :exec
-- A route for each queue and priority of a definition.
INSERT INTO pawl.route (definition, queue, priority)
SELECT @definition::bigint, q.queue, p.priority::smallint
  FROM (SELECT unnest(@queues::text[]) AS queue) q, (SELECT generate_series(0, 3) AS priority) p
 ORDER BY q.queue, p.priority
ON CONFLICT DO NOTHING;

-- name: Definitions :many
-- Every graph that runs of these workflows may have started with.
SELECT d.id, d.workflow, d.graph FROM pawl.definition d WHERE d.workflow = ANY (@workflows::text[]) ORDER BY d.id;

-- name: DefinitionByID :one
SELECT d.id, d.workflow, d.graph FROM pawl.definition d WHERE d.id = @id;

-- name: Routes :many
SELECT r.id, r.definition, r.queue, r.priority FROM pawl.route r WHERE r.definition = ANY (@definitions::bigint[]) ORDER BY r.id;
