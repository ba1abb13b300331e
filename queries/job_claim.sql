-- name: Claim :many
-- Leases due jobs of the given routes, in their order, to one owner. Candidates are locked in a
-- materialized CTE (a limit counted in the updating statement is re-evaluated and can overshoot);
-- the clock is read after locking. A closed session gets nothing.
WITH c AS MATERIALIZED (
  SELECT x.tid
    FROM (SELECT pg_catalog.unnest(@routes::int[]) AS route, pg_catalog.unnest(@floors::int[]) AS floor) r,
         LATERAL (SELECT j.ctid AS tid
                    FROM pawl.job j
                   WHERE j.shard = @shard::smallint AND j.route = r.route AND j.state = 'pending'
                     AND j.due_at <= pawl.now() AND j.node >= r.floor
                   ORDER BY j.due_at, j.id
                   LIMIT @most::int
                     FOR NO KEY UPDATE SKIP LOCKED) x
   LIMIT @most::int
), n AS MATERIALIZED (
  SELECT @shard::smallint AS shard, c.tid, pawl.clock() AS now FROM c
   WHERE EXISTS (SELECT FROM pawl.session s WHERE s.id = @owner::uuid AND s.closed_at IS NULL)
), u AS (
  UPDATE pawl.job j
     SET state = 'running', owner = @owner::uuid, token = j.token + 1,
         attempt = j.attempt + CASE j.mode WHEN 'do' THEN 1 ELSE 0 END,
         granted_at = n.now, expires_at = pawl.after(n.now, @lease_ms::bigint), deadline_at = pawl.after(n.now, @runtime_ms::bigint),
         at_expiry = CASE j.mode WHEN 'ask' THEN 'ask' ELSE 'retry' END
    FROM n
   WHERE j.shard = @shard::smallint AND j.ctid = n.tid AND n.shard = @shard::smallint
  RETURNING j.shard, j.id, j.run_id, j.token, j.cursor_seq, j.due_at, j.granted_at, j.failed_at, j.uncertain_at, j.effect_at, j.route,
            j.node, j.attempt, j.transients, j.unknowns, j.questions, j.effect_gen, j.mode, j.path, j.refs, j.effect_hash
)
SELECT u.shard, u.id, u.run_id, u.token, u.cursor_seq, u.due_at, u.granted_at::timestamptz AS granted_at, u.failed_at, u.uncertain_at,
       u.effect_at, u.route, u.node, u.attempt, u.transients, u.unknowns, u.questions, u.effect_gen, u.mode, u.path, u.refs,
       u.effect_hash, r.workflow, r.definition, r.key, r.ordering, r.generation, r.priority, r.encoding, r.input, r.cancelling,
       r.traceparent, r.tracestate, r.created_at
  FROM u, LATERAL (SELECT q.workflow, q.definition, q.key, q.ordering, q.generation, q.priority, q.encoding, q.input, q.cancelling,
                            q.traceparent, q.tracestate, q.created_at
                     FROM pawl.run q WHERE q.shard = @shard::smallint AND q.id >= u.run_id AND q.id <= u.run_id ORDER BY q.id LIMIT 1) r;
