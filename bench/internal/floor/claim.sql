-- name: Claim
-- $1 owner, $2 routes, $3 most.
WITH c AS MATERIALIZED (
  SELECT x.tid
    FROM (SELECT unnest($2::int[]) AS route) r,
         LATERAL (SELECT j.ctid AS tid FROM pawl.job j
                   WHERE j.shard = 0::smallint AND j.route = r.route AND j.state = 'pending' AND j.due_at <= now()
                   ORDER BY j.due_at, j.id LIMIT $3::int FOR NO KEY UPDATE SKIP LOCKED) x
   LIMIT $3::int
), n AS MATERIALIZED (SELECT 0::smallint AS shard, c.tid, clock_timestamp() AS now FROM c
), u AS (
  UPDATE pawl.job j
     SET state = 'running', owner = $1::uuid, token = j.token + 1, attempt = j.attempt + 1, granted_at = n.now,
         expires_at = n.now + interval '1 minute', deadline_at = n.now + interval '15 minutes'
    FROM n WHERE j.shard = 0::smallint AND j.ctid = n.tid AND n.shard = 0::smallint
  RETURNING j.id, j.run_id, j.token, j.node
)
SELECT u.id, u.run_id, u.token, u.node, r.input
  FROM u, LATERAL (SELECT q.input FROM pawl.run q WHERE q.shard = 0::smallint AND q.id >= u.run_id AND q.id <= u.run_id ORDER BY q.id LIMIT 1) r
