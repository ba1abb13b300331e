-- name: Violations :many
-- What can't be if every guarantee holds: one row for each thing found, of one snapshot. It reads everything.
WITH done AS MATERIALIZED (
  SELECT h.shard, h.run_id, h.path, h.node, count(*) AS times
    FROM pawl.history h JOIN pawl.run r ON r.shard = h.shard AND r.id = h.run_id
    JOIN pawl.definition d ON d.id = r.definition
   WHERE h.event IN ('completed', 'settled') AND h.node < json_array_length(convert_from(d.graph, 'UTF8')::json -> 'steps')
   GROUP BY 1, 2, 3, 4
), prefix AS MATERIALIZED (
  SELECT x.shard, x.run_id, count(*) AS nodes, min(x.node) AS first, max(x.node) AS last, max(x.times) AS times FROM done x GROUP BY 1, 2
), newest AS MATERIALIZED (
  SELECT h.shard, h.run_id, h.job, max(h.token) AS token FROM pawl.history h GROUP BY 1, 2, 3
), found AS (
  SELECT 'run-without-job' AS kind, format('run %s of %L lives and has no job', r.id, r.workflow) AS what
    FROM pawl.run r WHERE r.outcome IS NULL AND NOT EXISTS (SELECT FROM pawl.job j WHERE j.shard = r.shard AND j.run_id = r.id)
  UNION ALL
  SELECT 'job-without-run', format('job %s says it is of run %s, which is not there', j.id, j.run_id)
    FROM pawl.job j WHERE NOT EXISTS (SELECT FROM pawl.run r WHERE r.shard = j.shard AND r.id = j.run_id)
  UNION ALL
  SELECT 'job-of-ended-run', format('run %s has ended (%s), and its job %s is %s', r.id, r.outcome, j.id, j.state)
    FROM pawl.run r JOIN pawl.job j ON j.shard = r.shard AND j.run_id = r.id
   WHERE r.outcome IN ('succeeded', 'undone', 'cancelled') OR (r.outcome = 'failed' AND j.state <> 'dead')
  UNION ALL
  SELECT 'failed-without-dead-job', format('run %s has failed, and no job of it is dead', r.id)
    FROM pawl.run r WHERE r.outcome = 'failed' AND NOT EXISTS (SELECT FROM pawl.job j WHERE j.shard = r.shard AND j.run_id = r.id AND j.state = 'dead')
  UNION ALL
  SELECT 'dead-not-failed', format('every job of run %s is dead, and the run has not failed', r.id)
    FROM pawl.run r WHERE r.outcome IS NULL AND EXISTS (SELECT FROM pawl.job j WHERE j.shard = r.shard AND j.run_id = r.id)
     AND NOT EXISTS (SELECT FROM pawl.job j WHERE j.shard = r.shard AND j.run_id = r.id AND j.state <> 'dead')
  UNION ALL
  SELECT 'two-positions', format('run %s is a sequence and stands at %s places', j.run_id, count(*)) FROM pawl.job j GROUP BY j.shard, j.run_id HAVING count(*) > 1
  UNION ALL
  SELECT 'token-behind', format('job %s of run %s has token %s, and its history goes to %s', j.id, j.run_id, j.token, n.token)
    FROM pawl.job j JOIN newest n ON n.shard = j.shard AND n.run_id = j.run_id AND n.job = j.id WHERE n.token > j.token
  UNION ALL
  SELECT 'transition-unrecorded', format('job %s of run %s is %s with token %s, and its history goes to %s', j.id, j.run_id, j.state, j.token, coalesce(n.token, 0))
    FROM pawl.job j LEFT JOIN newest n ON n.shard = j.shard AND n.run_id = j.run_id AND n.job = j.id
   WHERE j.token - coalesce(n.token, 0) > CASE WHEN j.state = 'running' THEN 1 ELSE 0 END
  UNION ALL
  SELECT 'history-gap', format('the history of job %s of run %s goes from token %s to %s', g.job, g.run_id, g.before, g.token)
    FROM (SELECT h.job, h.run_id, h.token, lag(h.token, 1, 0::bigint) OVER (PARTITION BY h.shard, h.run_id, h.job ORDER BY h.token) AS before FROM pawl.history h) g
   WHERE g.token - g.before > 2
  UNION ALL
  SELECT 'step-done-twice', format('run %s completed a step %s times', p.run_id, p.times) FROM prefix p WHERE p.times > 1
  UNION ALL
  SELECT 'step-skipped', format('run %s completed %s steps, from number %s to %s', p.run_id, p.nodes, p.first, p.last)
    FROM prefix p WHERE p.first <> 0 OR p.last <> p.nodes - 1
  UNION ALL
  SELECT 'wrong-place', format('run %s completed %s steps and stands at number %s', j.run_id, coalesce(p.nodes, 0), j.node)
    FROM pawl.job j LEFT JOIN prefix p ON p.shard = j.shard AND p.run_id = j.run_id WHERE j.node <> coalesce(p.nodes, 0)
  UNION ALL
  SELECT 'succeeded-incomplete', format('run %s succeeded with %s of %s steps completed', r.id, coalesce(p.nodes, 0), json_array_length(convert_from(d.graph, 'UTF8')::json -> 'steps'))
    FROM pawl.run r JOIN pawl.definition d ON d.id = r.definition LEFT JOIN prefix p ON p.shard = r.shard AND p.run_id = r.id
   WHERE r.outcome = 'succeeded' AND coalesce(p.nodes, 0) <> json_array_length(convert_from(d.graph, 'UTF8')::json -> 'steps')
  UNION ALL
  SELECT 'result-missing', format('run %s succeeded, and its result is not recorded', r.id)
    FROM pawl.run r WHERE r.outcome = 'succeeded' AND r.output IS NULL
     AND NOT EXISTS (SELECT FROM pawl.history h WHERE h.shard = r.shard AND h.run_id = r.id AND h.job = r.result_job AND h.token = r.result_token AND h.output IS NOT NULL)
  UNION ALL
  SELECT 'value-missing', format('job %s of run %s needs a value that is not recorded: %s', j.id, j.run_id, f.ref)
    FROM pawl.job j CROSS JOIN LATERAL (SELECT pg_catalog.unnest(string_to_array(j.refs, ' ')) AS ref) f
   WHERE j.refs <> '' AND NOT EXISTS (SELECT FROM pawl.history h WHERE h.shard = j.shard AND h.run_id = j.run_id AND h.job = split_part(f.ref, ':', 2)::bigint
                                         AND h.token = split_part(f.ref, ':', 3)::bigint AND h.output IS NOT NULL)
  UNION ALL
  SELECT 'cursor-astray', format('the cursor of job %s has number %s, the job %s', c.job, c.seq, coalesce(j.cursor_seq::text, 'is gone'))
    FROM pawl.cursor c LEFT JOIN pawl.job j ON j.shard = c.shard AND j.id = c.job WHERE j.id IS NULL OR j.cursor_seq <> c.seq
  UNION ALL
  SELECT 'cursor-lost', format('job %s has moved its cursor %s times, and it is not there', j.id, j.cursor_seq)
    FROM pawl.job j WHERE j.cursor_seq > 0 AND NOT EXISTS (SELECT FROM pawl.cursor c WHERE c.shard = j.shard AND c.job = j.id)
  UNION ALL
  SELECT 'key-lost', format('run %s was started with the key %L, which does not know it', r.id, r.key)
    FROM pawl.run r WHERE r.key IS NOT NULL AND NOT EXISTS (SELECT FROM pawl.key k WHERE k.shard = r.shard AND k.workflow = r.workflow AND k.ordering = r.ordering
                                                               AND k.key = r.key AND k.generation >= r.generation AND (k.generation > r.generation OR k.run_id = r.id))
  UNION ALL
  SELECT 'owner-unknown', format('job %s of run %s is leased to %s, which never had a session', j.id, j.run_id, j.owner)
    FROM pawl.job j WHERE j.owner IS NOT NULL AND NOT EXISTS (SELECT FROM pawl.session s WHERE s.id = j.owner)
  UNION ALL
  SELECT 'route-unknown', format('job %s of run %s waits on route %s, which is not of its definition', j.id, j.run_id, j.route)
    FROM pawl.job j JOIN pawl.run r ON r.shard = j.shard AND r.id = j.run_id
   WHERE NOT EXISTS (SELECT FROM pawl.route x WHERE x.id = j.route AND x.definition = r.definition)
  UNION ALL
  SELECT 'lease-not-taken-back', format('the lease of job %s of run %s expired at %s, and nobody took it back: does any worker run?', j.id, j.run_id, j.expires_at)
    FROM pawl.job j WHERE j.state = 'running' AND j.expires_at < pawl.now() - interval '10 minutes'
  UNION ALL
  SELECT 'partitions-missing', format('the history has no partition for %s: does any worker run?', x.day)
    FROM (SELECT (pawl.now() AT TIME ZONE 'UTC')::date + i AS day FROM pg_catalog.generate_series(0, 2) AS i) x
   WHERE to_regclass('pawl.history_' || to_char(x.day, 'YYYYMMDD')) IS NULL
)
SELECT f.kind::text AS kind, f.what::text AS what FROM found f ORDER BY 1, 2 LIMIT 1000;
