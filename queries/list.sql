-- A list is made in pages of bounded cost: one of the Look statements names runs, newest first, by the index that fits
-- what is asked for, and looks at so many at most; ListRuns tells more of them, and drops those that do not fit.

-- name: LookAtRuns :many
-- By id. Those that can't fit are not named, but the last that was looked at is: the next page begins behind it.
SELECT x.id, x.n::int AS n, x.fits::boolean AS fits
  FROM (SELECT c.id, row_number() OVER (ORDER BY c.id DESC) AS n, count(*) OVER () AS all_of_them,
               (pg_catalog.cardinality(@outcomes::text[]) = 0 OR coalesce(c.outcome, 'lives') = ANY (@outcomes::text[])) AND (pg_catalog.cardinality(@tags::text[]) = 0 OR c.tags @> @tags::text[]) AS fits
          FROM (SELECT r.id, r.outcome, r.tags FROM pawl.run r WHERE r.shard = @shard::smallint AND r.id >= @first::uuid AND r.id < @before::uuid
                 ORDER BY r.id DESC LIMIT @most::int) c) x
 WHERE x.fits OR x.n = x.all_of_them ORDER BY x.n;

-- name: LookAtWorkflow :many
-- The same of one workflow, of all shards.
SELECT x.id, x.n::int AS n, x.fits::boolean AS fits
  FROM (SELECT c.id, row_number() OVER (ORDER BY c.id DESC) AS n, count(*) OVER () AS all_of_them,
               (pg_catalog.cardinality(@outcomes::text[]) = 0 OR coalesce(c.outcome, 'lives') = ANY (@outcomes::text[])) AND (pg_catalog.cardinality(@tags::text[]) = 0 OR c.tags @> @tags::text[])
               AND (@key::text = '' OR c.key = @key::text) AS fits
          FROM (SELECT r.id, r.outcome, r.tags, r.key FROM pawl.run r WHERE r.workflow = @workflow::text AND r.id >= @first::uuid AND r.id < @before::uuid
                 ORDER BY r.workflow DESC, r.id DESC LIMIT @most::int) c) x
 WHERE x.fits OR x.n = x.all_of_them ORDER BY x.n;

-- name: LookAtJobs :many
-- Runs that live or have failed.
SELECT j.run_id AS id FROM pawl.job j WHERE j.shard = @shard::smallint AND j.run_id >= @first::uuid AND j.run_id < @before::uuid
 ORDER BY j.run_id DESC, j.id DESC LIMIT @most::int;

-- name: LookAtDead :many
SELECT j.run_id AS id FROM pawl.job j WHERE j.shard = @shard::smallint AND j.run_id >= @first::uuid AND j.run_id < @before::uuid AND j.state = 'dead'
 ORDER BY j.run_id DESC, j.id DESC LIMIT @most::int;

-- name: LookAtUnsettled :many
SELECT j.run_id AS id FROM pawl.job j WHERE j.shard = @shard::smallint AND j.run_id >= @first::uuid AND j.run_id < @before::uuid AND j.uncertain_at IS NOT NULL
 ORDER BY j.run_id DESC, j.id DESC LIMIT @most::int;

-- name: LookAtStranded :many
-- Due on a route of which no live worker knows all steps; so many of the oldest of each.
WITH f AS MATERIALIZED (
  SELECT k.route, min(k.floor) AS floor
    FROM pawl.session o, LATERAL (SELECT pg_catalog.unnest(o.routes) AS route, pg_catalog.unnest(o.floors) AS floor) k
   WHERE o.closed_at IS NULL AND o.expires_at > pawl.now() GROUP BY k.route
)
SELECT x.run_id AS id
  FROM pawl.route w LEFT JOIN f ON f.route = w.id
 CROSS JOIN LATERAL (SELECT j.run_id, j.node FROM pawl.job j WHERE j.shard = @shard::smallint AND j.route = w.id AND j.state = 'pending' AND j.due_at <= pawl.now()
                      ORDER BY j.due_at, j.id LIMIT @most::int) x
 WHERE (f.floor IS NULL OR f.floor > 0) AND (f.floor IS NULL OR x.node < f.floor) AND x.run_id >= @first::uuid AND x.run_id < @before::uuid
 ORDER BY x.run_id DESC LIMIT @most::int;

-- name: LookAtTags :many
-- All runs with these tags are read: for tags that the newest runs do not have.
WITH c AS MATERIALIZED (SELECT r.shard, r.id FROM pawl.run r WHERE r.tags @> @tags::text[] AND r.tags <> '{}')
SELECT c.id FROM c WHERE c.id >= @first::uuid AND c.id < @before::uuid ORDER BY c.id DESC LIMIT @most::int;

-- name: LookAtKey :many
-- The newest run of a key, of every workflow that has such a key.
SELECT k.workflow, k.generation, k.run_id AS id
  FROM (SELECT DISTINCT d.workflow FROM pawl.definition d) w
 CROSS JOIN LATERAL (SELECT x.workflow, x.generation, x.run_id FROM pawl.key x
                      WHERE x.shard = pawl.shard_of(@key::text, (SELECT m.shards FROM pawl.meta m)) AND x.workflow = w.workflow AND x.ordering = '' AND x.key = @key::text LIMIT 1) k
 ORDER BY k.run_id DESC;

-- name: ListRuns :many
-- Of these runs, of one shard or of several, those that fit, newest first. The state of a live run is derived from its
-- jobs; view pawl.runs and engine.Get say the same.
WITH f AS MATERIALIZED (
  SELECT k.route, min(k.floor) AS floor
    FROM pawl.session o, LATERAL (SELECT pg_catalog.unnest(o.routes) AS route, pg_catalog.unnest(o.floors) AS floor) k
   WHERE o.closed_at IS NULL AND o.expires_at > pawl.now() GROUP BY k.route
)
SELECT r.shard, r.id, r.workflow, r.key, r.ordering, r.priority, r.tags, r.created_at, r.ended_at, s.state::text AS state, s.step_node, s.code, coalesce(s.due_at, '9999-01-01 00:00:00+00')::timestamptz AS due_at, r.definition, coalesce(s.stranded, false)::boolean AS stranded
  FROM (SELECT pg_catalog.unnest(@shards::smallint[]) AS shard, pg_catalog.unnest(@ids::uuid[]) AS id) i
  CROSS JOIN LATERAL (SELECT q.shard, q.id, q.workflow, q.definition, q.key, q.ordering, q.priority, q.tags, q.created_at, q.ended_at, q.outcome, q.cancelling FROM pawl.run q WHERE q.shard = i.shard AND q.id >= i.id AND q.id <= i.id ORDER BY q.id LIMIT 1) r
  JOIN LATERAL (
    SELECT coalesce(r.outcome, CASE WHEN r.cancelling THEN 'cancelling'
             WHEN bool_or(j.state = 'dead') THEN 'dead'
             WHEN bool_or(j.state = 'uncertain' OR j.mode = 'ask') THEN 'uncertain'
             WHEN bool_or(j.state = 'running') THEN 'running'
             WHEN bool_or(j.state = 'waiting') THEN 'waiting'
             WHEN bool_and(j.due_at > pawl.now()) THEN 'scheduled'
             ELSE 'running' END) AS state,
           min(j.node) AS step_node, max(j.code) AS code, least(min(j.due_at) FILTER (WHERE j.state IN ('pending', 'uncertain')), '9999-01-01 00:00:00+00') AS due_at,
           bool_or(j.state = 'pending' AND j.due_at <= pawl.now() AND NOT EXISTS (SELECT FROM f WHERE f.route = j.route AND j.node >= f.floor)) AS stranded
      FROM pawl.job j WHERE j.shard = r.shard AND j.run_id = r.id) s ON true
 WHERE (@workflow::text = '' OR r.workflow = @workflow::text)
   AND (@key::text = '' OR r.key = @key::text)
   AND (pg_catalog.cardinality(@tags::text[]) = 0 OR r.tags @> @tags::text[])
   AND (pg_catalog.cardinality(@states::text[]) = 0 OR s.state = ANY (@states::text[]) OR ('stranded' = ANY (@states::text[]) AND s.stranded))
   AND (@code::text = '' OR s.code = @code::text)
   AND (NOT @by_step::boolean OR (r.outcome IS NULL OR r.outcome = 'failed') AND
        EXISTS (SELECT FROM (SELECT pg_catalog.unnest(@definitions::bigint[]) AS definition, pg_catalog.unnest(@nodes::int[]) AS node) p WHERE p.definition = r.definition AND p.node = s.step_node))
   AND r.created_at >= @since::timestamptz AND r.created_at < @until::timestamptz
 ORDER BY r.id DESC LIMIT @most::int;
