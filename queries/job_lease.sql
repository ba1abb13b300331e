-- Statements that keep or shape a lease without ending it: fenced like a transition, no token, no history.

-- name: Begin :many
-- Sets the lease that a step asks for, stores an effect's key with its time and the hash of its input
-- (the first grant only), and records that the body of a LookUp or Manual effect is about to be called.
-- An input that differs from the first grant's begins nothing: the caller compares the hash it gets back.
WITH g AS MATERIALIZED (
  SELECT @shard::smallint AS shard, i.id, i.lease_ms, i.runtime_ms, i.begun, i.at_expiry, i.new_key, i.new_hash, x.tid, t.now, t.ok, t.agrees
    FROM (SELECT pg_catalog.unnest(@ids::bigint[]) AS id, pg_catalog.unnest(@tokens::bigint[]) AS token, pg_catalog.unnest(@lease_ms::bigint[]) AS lease_ms,
                 pg_catalog.unnest(@runtime_ms::bigint[]) AS runtime_ms, pg_catalog.unnest(@begun::boolean[]) AS begun, pg_catalog.unnest(@at_expiry::text[]) AS at_expiry,
                 pg_catalog.unnest(@effect_keys::bytea[]) AS new_key, pg_catalog.unnest(@effect_hashes::bytea[]) AS new_hash) i
    LEFT JOIN LATERAL (SELECT j.ctid AS tid, j.state, j.owner, j.token, j.expires_at, j.effect_hash
                         FROM pawl.job j WHERE j.shard = @shard::smallint AND j.id >= i.id AND j.id <= i.id
                        ORDER BY j.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) x ON true
    CROSS JOIN LATERAL (SELECT c.now, coalesce(x.state = 'running' AND x.owner = @owner::uuid AND x.token = i.token AND x.expires_at > c.now, false) AS ok,
                               (x.effect_hash IS NULL OR i.new_hash IS NULL OR x.effect_hash = i.new_hash) AS agrees
                          FROM (SELECT pawl.clock() AS now WHERE x.tid IS NULL OR x.tid IS NOT NULL) c) t -- naming x: after locking
), u AS (
  UPDATE pawl.job j
     SET deadline_at = greatest(j.granted_at, pawl.after(j.granted_at, g.runtime_ms)),
         expires_at = least(pawl.after(j.granted_at, g.runtime_ms), pawl.after(g.now, g.lease_ms)),
         begun = j.begun OR (g.begun AND g.agrees),
         at_expiry = CASE WHEN j.begun OR j.mode <> 'do' OR NOT g.agrees THEN j.at_expiry ELSE g.at_expiry END,
         effect_key = coalesce(j.effect_key, g.new_key), effect_hash = coalesce(j.effect_hash, g.new_hash),
         effect_at = coalesce(j.effect_at, CASE WHEN g.new_key IS NOT NULL THEN g.now END)
    FROM g
   WHERE j.shard = @shard::smallint AND j.ctid = g.tid AND g.shard = @shard::smallint AND g.ok
  RETURNING g.id, g.now, j.expires_at, j.deadline_at, j.effect_at, j.effect_hash
)
SELECT u.id::bigint AS id, 'done'::text AS verdict, u.now::timestamptz AS now, u.expires_at, u.deadline_at, u.effect_at, u.effect_hash
  FROM u
UNION ALL
SELECT g.id, CASE WHEN g.tid IS NULL AND b.id IS NOT NULL THEN 'busy' ELSE 'lost' END, g.now, NULL, NULL, NULL, NULL
  FROM g LEFT JOIN LATERAL (SELECT j.id FROM pawl.job j WHERE g.tid IS NULL AND j.shard = @shard::smallint AND j.id >= g.id AND j.id <= g.id
                             ORDER BY j.id LIMIT 1) b ON true
 WHERE NOT g.ok;

-- name: Renew :many
-- A heartbeat: moves the expiry on, never back and never beyond the attempt's deadline.
WITH g AS MATERIALIZED (
  SELECT @shard::smallint AS shard, i.id, i.lease_ms, x.tid, t.now, t.ok
    FROM (SELECT pg_catalog.unnest(@ids::bigint[]) AS id, pg_catalog.unnest(@tokens::bigint[]) AS token, pg_catalog.unnest(@lease_ms::bigint[]) AS lease_ms) i
    LEFT JOIN LATERAL (SELECT j.ctid AS tid, j.state, j.owner, j.token, j.expires_at
                         FROM pawl.job j WHERE j.shard = @shard::smallint AND j.id >= i.id AND j.id <= i.id
                        ORDER BY j.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) x ON true
    CROSS JOIN LATERAL (SELECT c.now, coalesce(x.state = 'running' AND x.owner = @owner::uuid AND x.token = i.token AND x.expires_at > c.now, false) AS ok
                          FROM (SELECT pawl.clock() AS now WHERE x.tid IS NULL OR x.tid IS NOT NULL) c) t -- naming x: after locking
), u AS (
  UPDATE pawl.job j
     SET expires_at = least(j.deadline_at, greatest(j.expires_at, pawl.after(g.now, g.lease_ms)))
    FROM g
   WHERE j.shard = @shard::smallint AND j.ctid = g.tid AND g.shard = @shard::smallint AND g.ok
  RETURNING g.id, g.now, j.expires_at, j.deadline_at
)
SELECT u.id::bigint AS id, 'done'::text AS verdict, u.now::timestamptz AS now, u.expires_at, u.deadline_at
  FROM u
UNION ALL
SELECT g.id, CASE WHEN g.tid IS NULL AND b.id IS NOT NULL THEN 'busy' ELSE 'lost' END, g.now, NULL, NULL
  FROM g LEFT JOIN LATERAL (SELECT j.id FROM pawl.job j WHERE g.tid IS NULL AND j.shard = @shard::smallint AND j.id >= g.id AND j.id <= g.id
                             ORDER BY j.id LIMIT 1) b ON true
 WHERE NOT g.ok;

-- name: LockJob :one
-- Waits (lock_timeout) for the job's row: the first half of a fence inside a transaction of the user's.
SELECT j.state, j.owner, j.token, j.cursor_seq FROM pawl.job j
 WHERE j.shard = @shard::smallint AND j.id >= @id AND j.id <= @id ORDER BY j.id LIMIT 1 FOR NO KEY UPDATE;

-- name: LockRun :one
SELECT r.id FROM pawl.run r
 WHERE r.shard = @shard::smallint AND r.id >= @id AND r.id <= @id ORDER BY r.id LIMIT 1 FOR NO KEY UPDATE;

-- name: ReadJob :one
-- What stands there, when an answer was lost.
SELECT j.state, j.owner, j.token, j.cursor_seq, j.expires_at, j.deadline_at, j.granted_at, j.effect_at, pawl.clock()::timestamptz AS now
  FROM pawl.job j WHERE j.shard = @shard::smallint AND j.id >= @id AND j.id <= @id ORDER BY j.id LIMIT 1;
