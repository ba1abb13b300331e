-- What pawl show reads of one run.

-- name: JobsToShow :many
SELECT j.id, j.node, j.path, j.state, j.mode, j.attempt, j.token, least(j.due_at, '9999-01-01 00:00:00+00')::timestamptz AS due_at, w.queue, j.lapses, j.transients, j.unknowns, j.questions,
       j.code, j.failed_at, j.uncertain_at, j.granted_at, j.expires_at, j.deadline_at, j.effect_at, j.effect_key, j.begun, o.id AS owner, o.name AS worker, o.host, o.pid,
       coalesce(o.closed_at IS NULL AND o.expires_at > pawl.now(), false)::boolean AS worker_alive, CASE WHEN c.job IS NOT NULL THEN c.done END AS done, CASE WHEN c.job IS NOT NULL THEN c.total END AS total, CASE WHEN c.job IS NOT NULL THEN c.saved_at END AS saved_at, pawl.clock()::timestamptz AS now,
       (SELECT count(*) FROM pawl.session s WHERE s.closed_at IS NULL AND s.expires_at > pawl.now()) AS workers,
       coalesce((SELECT min(k.floor) FROM pawl.session s, LATERAL (SELECT pg_catalog.unnest(s.routes) AS route, pg_catalog.unnest(s.floors) AS floor) k
                  WHERE s.closed_at IS NULL AND s.expires_at > pawl.now() AND k.route = j.route), -1)::int AS floor
  FROM (SELECT x.* FROM pawl.job x WHERE x.shard = @shard::smallint AND x.run_id >= @run_id AND x.run_id <= @run_id ORDER BY x.run_id, x.id LIMIT 1000) j
  JOIN pawl.route w ON w.id = j.route
  LEFT JOIN pawl.session o ON o.id = j.owner
  LEFT JOIN LATERAL (SELECT y.job, y.done, y.total, y.saved_at FROM pawl.cursor y WHERE y.shard = @shard::smallint AND y.job = j.id LIMIT 1) c ON true
 ORDER BY j.id;

-- name: HistoryToShow :many
-- Payloads only if they are asked for.
SELECT h.job, h.token, h.node, h.path, h.attempt, coalesce(h.mode, 'do')::text AS mode, coalesce(h.from_state, 'running')::text AS from_state, h.to_state, h.event, coalesce(h.writer, 'worker')::text AS writer, h.granted_at, h.ended_at, h.owner, o.name AS worker, h.actor, h.class, h.code,
       h.reason, h.evidence, coalesce(octet_length(h.output), -1)::int AS size, CASE WHEN @payloads::boolean THEN h.output END::bytea AS output
  FROM pawl.history h LEFT JOIN pawl.session o ON o.id = h.owner
 WHERE h.shard = @shard::smallint AND h.run_id = @run_id AND (h.job, h.token) > (@after_job::bigint, @after_token::bigint)
 ORDER BY h.job, h.token LIMIT @most::int;

-- name: EvidenceToShow :many
SELECT e.job, e.token, e.node, e.path, e.attempt, e.came_at, e.owner, o.name AS worker, e.class, e.code, e.reason, coalesce(octet_length(e.output), -1)::int AS size,
       CASE WHEN @payloads::boolean THEN e.output END::bytea AS output
  FROM pawl.evidence e LEFT JOIN pawl.session o ON o.id = e.owner
 WHERE e.shard = @shard::smallint AND e.run_id = @run_id ORDER BY e.id LIMIT 1000;

-- name: ActsToShow :many
SELECT a.acted_at, a.actor, a.act, a.reason FROM pawl.audit a WHERE a.run_id = @run_id::uuid ORDER BY a.acted_at, a.id LIMIT 1000;

-- name: ResultToShow :one
-- The run's result, where it has one.
SELECT coalesce(octet_length(x.output), -1)::int AS size, CASE WHEN @payloads::boolean THEN x.output END::bytea AS output
  FROM (SELECT coalesce(r.output, (SELECT h.output FROM pawl.history h WHERE h.shard = r.shard AND h.run_id = r.id AND h.job = r.result_job AND h.token = r.result_token)) AS output
          FROM pawl.run r WHERE r.shard = @shard::smallint AND r.id >= @id AND r.id <= @id ORDER BY r.id LIMIT 1) x;
