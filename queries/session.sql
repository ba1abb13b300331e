-- name: OpenSession :one
INSERT INTO pawl.session (id, name, routes, floors, started_at, expires_at, host, pid, build, pawl)
SELECT @id::uuid, @name::text, @routes::int[], @floors::int[], t.now, pawl.after(t.now, @ttl_ms::bigint), @host::text, @pid::int, @build::text, @pawl::text FROM (SELECT pawl.clock() AS now) t
RETURNING started_at;

-- name: CloseSession :exec
-- A worker closes its own session when it holds nothing any more.
UPDATE pawl.session SET closed_at = pawl.now() WHERE id = @id::uuid AND closed_at IS NULL;

-- name: Pulse :one
-- Renews the session and tells what there is to do: when each route has work next, when a lease or the session of
-- one that holds a lease runs out, when a question is due, which of this owner's runs are being cancelled, and
-- whether there are others to be ended (what is uncertain is settled first, perhaps by a person: it must not hide them).
WITH s AS (
  UPDATE pawl.session SET expires_at = pawl.after(pawl.clock(), @ttl_ms::bigint), routes = @routes::int[], floors = @floors::int[]
   WHERE id = @owner::uuid AND closed_at IS NULL
  RETURNING id
), d AS MATERIALIZED (
  SELECT r.route, least(x.due_at, '9999-01-01 00:00:00+00') AS due_at -- infinity is no time in Go
    FROM (SELECT pg_catalog.unnest(@routes::int[]) AS route, pg_catalog.unnest(@floors::int[]) AS floor) r,
         LATERAL (SELECT j.due_at FROM pawl.job j
                   WHERE j.shard = @shard::smallint AND j.route = r.route AND j.state = 'pending' AND j.node >= r.floor
                   ORDER BY j.due_at, j.id LIMIT 1) x
), e AS MATERIALIZED (
  SELECT min(CASE WHEN o.id IS NULL THEN pawl.now() ELSE j.expires_at END) AS lapse_at, min(o.expires_at) AS session_lapse_at
    FROM pawl.job j LEFT JOIN pawl.session o ON o.id = j.owner AND o.closed_at IS NULL
   WHERE j.shard = @shard::smallint AND j.state = 'running'
)
SELECT EXISTS (SELECT FROM s)::boolean AS alive, pawl.clock()::timestamptz AS now,
       coalesce((SELECT pg_catalog.array_agg(d.route ORDER BY d.route) FROM d), '{}')::int[] AS routes,
       coalesce((SELECT pg_catalog.array_agg(d.due_at ORDER BY d.route) FROM d), '{}')::timestamptz[] AS due_ats,
       coalesce((SELECT e.lapse_at FROM e), '9999-01-01 00:00:00+00')::timestamptz AS lapse_at,
       coalesce((SELECT e.session_lapse_at FROM e), '9999-01-01 00:00:00+00')::timestamptz AS session_lapse_at,
       coalesce((SELECT j.due_at FROM pawl.job j WHERE j.shard = @shard::smallint AND j.state = 'uncertain' AND j.due_at < 'infinity' ORDER BY j.due_at, j.id LIMIT 1),
                '9999-01-01 00:00:00+00')::timestamptz AS ask_at,
       ((SELECT r.id FROM pawl.run r WHERE r.shard = @shard::smallint AND r.cancelling
            AND (SELECT j.id FROM pawl.job j WHERE j.shard = @shard::smallint AND j.run_id >= r.id AND j.run_id <= r.id
                    AND j.mode <> 'ask' AND j.state IN ('pending', 'dead') ORDER BY j.run_id LIMIT 1) IS NOT NULL
          ORDER BY r.id LIMIT 1) IS NOT NULL)::boolean AS closable,
       coalesce((SELECT pg_catalog.array_agg(c.id) FROM (SELECT x.id FROM pawl.job j,
                         LATERAL (SELECT r.id FROM pawl.run r WHERE r.shard = @shard::smallint AND r.id >= j.run_id AND r.id <= j.run_id AND r.cancelling
                                   ORDER BY r.id LIMIT 1) x
                 WHERE j.shard = @shard::smallint AND j.state = 'running' AND j.owner = @owner::uuid
                   AND (SELECT r.id FROM pawl.run r WHERE r.shard = @shard::smallint AND r.cancelling ORDER BY r.id LIMIT 1) IS NOT NULL) c),
                '{}')::uuid[] AS cancelling;

-- name: MakePartitions :one
SELECT pawl.make_partitions(@days::int)::int AS made;

-- name: Notify :exec
SELECT pg_catalog.pg_notify('pawl', @payload::text);

-- name: Shards :one
SELECT shards FROM pawl.meta;

-- name: StrandedRoutes :many
-- Due work that no open session may claim, by workflow and step number. Only routes that nobody knows from the
-- first step on are looked into, and a thousand jobs of each at most.
SELECT d.workflow, d.id AS definition, x.node, x.jobs, x.since::timestamptz AS since
  FROM pawl.route r JOIN pawl.definition d ON d.id = r.definition
  CROSS JOIN LATERAL (
    SELECT y.node, count(*) AS jobs, min(y.due_at) AS since
      FROM (SELECT j.node, j.due_at FROM pawl.job j
             WHERE j.shard = @shard::smallint AND j.route = r.id AND j.state = 'pending' AND j.due_at <= pawl.now()
               AND NOT EXISTS (SELECT FROM pawl.session s, LATERAL (SELECT pg_catalog.unnest(s.routes) AS route, pg_catalog.unnest(s.floors) AS floor) k
                                WHERE s.closed_at IS NULL AND k.route = r.id AND j.node >= k.floor)
             ORDER BY j.due_at, j.id LIMIT 1000) y
     GROUP BY y.node) x
 WHERE NOT EXISTS (SELECT FROM pawl.session s, LATERAL (SELECT pg_catalog.unnest(s.routes) AS route, pg_catalog.unnest(s.floors) AS floor) k
                    WHERE s.closed_at IS NULL AND k.route = r.id AND k.floor = 0)
 ORDER BY d.workflow, d.id, x.node LIMIT 1000;
