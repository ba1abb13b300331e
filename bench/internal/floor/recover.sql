-- name: Recover
-- $1 request, $2 most.
WITH l AS MATERIALIZED (
  SELECT j.ctid AS tid, j.id, j.run_id, j.token, j.owner, j.granted_at, j.node, j.attempt FROM pawl.job j
   WHERE j.shard = 0::smallint AND j.state = 'running' AND j.expires_at <= now()
   ORDER BY j.id LIMIT $2::int FOR NO KEY UPDATE SKIP LOCKED
), f AS MATERIALIZED (SELECT 0::smallint AS shard, l.*, clock_timestamp() AS now FROM l
), u AS (
  UPDATE pawl.job j
     SET state = 'pending', token = j.token + 1, owner = NULL, granted_at = NULL, expires_at = NULL, deadline_at = NULL,
         code = 'LEASE_EXPIRED', lapses = j.lapses + 1, due_at = f.now
    FROM f WHERE j.shard = 0::smallint AND j.ctid = f.tid AND f.shard = 0::smallint
  RETURNING f.id, f.run_id, f.token, f.owner, f.granted_at, f.node, f.attempt, f.now
), h AS (
  INSERT INTO pawl.history (shard, run_id, job, token, granted_at, ended_at, node, attempt, owner, request, path, mode, from_state, to_state, event, writer, class, code, reason)
  SELECT 0, u.run_id, u.id, u.token + 1, u.granted_at, u.now, u.node, u.attempt, u.owner, $1::bigint, '', 'do', 'running', 'pending', 'lapsed', 'recovery',
         'lapse', 'LEASE_EXPIRED', 'the lease expired without progress, or the attempt reached its max runtime'
    FROM u
)
SELECT count(*) FROM u
