-- name: Transition :many
-- The one statement by which an attempt ends: complete, fail, retry, snooze, uncertain, hand back, settle.
-- Rows are locked in the order of the arrays (sorted in Go), skipping what others hold; then the clock is
-- read and the fence tested; then the job advances in place or goes, its run ends if it is to, and one
-- history row a transition is written. A successor that the same worker may run is leased by the same
-- update. Each item is answered: done, lost, busy (ask again); one that is not answered is busy too.
--
-- What travels for each is what differs each time: most are steps that a worker has completed, and whose
-- successor starts anew. Whatever else there is to say is in more, a JSON object, empty for those.
--
-- Here and in the other statements rows are looked up by key in a form that keeps its plan whatever the planner
-- believes of the tables (of an emptied one it believes that every scan is free, and of all scans a unique key's the
-- dearest): a range of one key, in the key's order, LIMIT 1: only the key's index gives the order, and nothing joins
-- it from the other side. Found rows are changed by ctid; the constant shard among the found makes the planner expect
-- one of them, so that it does not read the table once for all. Nothing is joined by id that can be handed on.
WITH k AS MATERIALIZED (
  SELECT @shard::smallint AS shard, i.id, i.request, i.node, i.refs, i.output, i.result, i.more, i.advance,
         x.tid, x.granted_at, x.old_node, x.old_mode, x.old_attempt, t.now, t.fence, t.stop, m.tid AS run_tid, p.tid AS cursor_tid,
         CASE WHEN t.stop THEN 'gone' ELSE i.to_state END AS eff,
         -- A run ends only in the version that this statement's snapshot can update, a cursor goes only if nobody holds it.
         (t.fence AND (p.tid IS NULL OR v.tid = p.tid) AND ((NOT t.stop AND i.to_state NOT IN ('gone', 'dead')) OR (m.tid IS NOT NULL AND m.tid = r.seen))) AS ok
    FROM (SELECT y.id, y.token, y.request, y.to_state, y.node, y.refs, y.output, y.result, y.more,
                 (y.more IS NULL OR coalesce((y.more->>'advance')::boolean, false)) AS advance
            FROM (SELECT pg_catalog.unnest(@ids::bigint[]) AS id, pg_catalog.unnest(@tokens::bigint[]) AS token, pg_catalog.unnest(@requests::bigint[]) AS request,
                         pg_catalog.unnest(@to_states::text[]) AS to_state, pg_catalog.unnest(@nodes::int[]) AS node, pg_catalog.unnest(@refs::text[]) AS refs,
                         pg_catalog.unnest(@outputs::bytea[]) AS output, pg_catalog.unnest(@results::bytea[]) AS result, nullif(pg_catalog.unnest(@more::text[]), '')::jsonb AS more) y) i
    LEFT JOIN LATERAL (SELECT j.ctid AS tid, j.run_id, j.state, j.owner, j.token, j.expires_at, j.granted_at,
                              j.node AS old_node, j.mode AS old_mode, j.attempt AS old_attempt
                         FROM pawl.job j WHERE j.shard = @shard::smallint AND j.id >= i.id AND j.id <= i.id
                        ORDER BY j.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) x ON true
    LEFT JOIN LATERAL (SELECT q.ctid AS seen, q.cancelling FROM pawl.run q -- not looked at if nothing ends and nothing is being cancelled
                        WHERE (i.to_state IN ('gone', 'dead')
                               OR (SELECT a.id FROM pawl.run a WHERE a.shard = @shard::smallint AND a.cancelling ORDER BY a.id LIMIT 1) IS NOT NULL)
                          AND q.shard = @shard::smallint AND q.id >= x.run_id AND q.id <= x.run_id ORDER BY q.id LIMIT 1) r ON true
    CROSS JOIN LATERAL (SELECT c.now, coalesce(x.state = 'running' AND x.owner = @owner::uuid AND x.token = i.token AND x.expires_at > c.now, false) AS fence,
                               -- A cancelled run ends at the next boundary, unless its last step has just been
                               -- completed or its effect's outcome is still unknown.
                               coalesce(r.cancelling AND i.to_state IN ('pending', 'running', 'dead') AND i.more->>'mode' IS DISTINCT FROM 'ask', false) AS stop
                          FROM (SELECT pawl.clock() AS now WHERE x.tid IS NULL OR x.tid IS NOT NULL) c) t -- naming x: after locking
    LEFT JOIN LATERAL (SELECT q.ctid AS tid FROM pawl.run q
                        WHERE t.fence AND (t.stop OR i.to_state IN ('gone', 'dead')) AND q.shard = @shard::smallint AND q.id >= x.run_id AND q.id <= x.run_id
                        ORDER BY q.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) m ON true
    LEFT JOIN LATERAL (SELECT c.ctid AS tid FROM pawl.cursor c
                        WHERE t.fence AND (t.stop OR i.advance OR i.to_state = 'gone') AND c.shard = @shard::smallint AND c.job = i.id LIMIT 1) p ON true
    LEFT JOIN LATERAL (SELECT c.ctid AS tid FROM pawl.cursor c
                        WHERE p.tid IS NOT NULL AND c.shard = @shard::smallint AND c.job = i.id LIMIT 1 FOR UPDATE SKIP LOCKED) v ON true
), u AS (
  UPDATE pawl.job j
     SET state = k.eff, mode = coalesce(k.more->>'mode', 'do'), token = j.token + 1, node = k.node, refs = k.refs,
         route = coalesce((k.more->>'route')::int, j.route),
         due_at = CASE WHEN k.eff IN ('running', 'dead') THEN j.due_at WHEN (k.more->>'delay_ms')::bigint < 0 THEN 'infinity'
                       ELSE pawl.after(k.now, coalesce((k.more->>'delay_ms')::bigint, 0)) END,
         owner = CASE WHEN k.eff = 'running' THEN j.owner END,
         granted_at = CASE WHEN k.eff = 'running' THEN k.now END,
         expires_at = CASE WHEN k.eff = 'running' THEN pawl.after(k.now, coalesce((k.more->>'lease_ms')::bigint, @lease_ms::bigint)) END,
         deadline_at = CASE WHEN k.eff = 'running' THEN pawl.after(k.now, coalesce((k.more->>'runtime_ms')::bigint, @runtime_ms::bigint)) END,
         at_expiry = 'retry', begun = false,
         attempt = coalesce((k.more->>'attempt')::int, CASE k.eff WHEN 'running' THEN 1 ELSE 0 END),
         transients = coalesce((k.more->>'transients')::int, 0), unknowns = coalesce((k.more->>'unknowns')::int, 0),
         questions = coalesce((k.more->>'questions')::int, 0),
         lapses = CASE WHEN k.advance THEN 0 ELSE j.lapses END,
         cursor_seq = CASE WHEN k.advance THEN 0 ELSE j.cursor_seq END,
         failed_at = CASE WHEN k.advance THEN NULL WHEN k.more->>'event' IN ('retried', 'repeat') THEN coalesce(j.failed_at, k.now) ELSE j.failed_at END,
         uncertain_at = CASE WHEN k.eff = 'uncertain' THEN coalesce(j.uncertain_at, k.now) WHEN k.more->>'mode' = 'ask' THEN j.uncertain_at END,
         code = CASE WHEN k.advance THEN NULL ELSE coalesce(k.more->>'code', j.code) END,
         effect_gen = CASE WHEN k.advance THEN 0 ELSE j.effect_gen END,
         effect_key = CASE WHEN k.advance THEN decode(k.more->>'effect_key', 'hex') ELSE j.effect_key END,
         effect_hash = CASE WHEN k.advance THEN decode(k.more->>'effect_hash', 'hex') ELSE j.effect_hash END,
         effect_at = CASE WHEN NOT k.advance THEN j.effect_at WHEN k.more->>'effect_key' IS NOT NULL THEN k.now END
    FROM k
   WHERE j.shard = @shard::smallint AND j.ctid = k.tid AND k.shard = @shard::smallint AND k.ok AND k.eff <> 'gone'
  RETURNING k.shard, j.id, j.run_id, j.token, j.path, k.request, k.output, k.result, k.more, k.advance, k.stop, k.run_tid, k.cursor_tid, k.eff, k.now,
            k.granted_at, k.old_node, k.old_mode, k.old_attempt
), d AS (
  DELETE FROM pawl.job j USING k
   WHERE j.shard = @shard::smallint AND j.ctid = k.tid AND k.shard = @shard::smallint AND k.ok AND k.eff = 'gone'
  RETURNING k.shard, j.id, j.run_id, j.token + 1 AS token, j.path, k.request, k.output, k.result, k.more, k.advance, k.stop, k.run_tid, k.cursor_tid, k.eff, k.now,
            k.granted_at, k.old_node, k.old_mode, k.old_attempt
), w AS MATERIALIZED (
  SELECT u.shard, u.id, u.run_id, u.token, u.path, u.request, u.output, u.result, u.more, u.advance, u.stop, u.run_tid, u.cursor_tid, u.eff, u.now,
         u.granted_at, u.old_node, u.old_mode, u.old_attempt FROM u
  UNION ALL
  SELECT d.shard, d.id, d.run_id, d.token, d.path, d.request, d.output, d.result, d.more, d.advance, d.stop, d.run_tid, d.cursor_tid, d.eff, d.now,
         d.granted_at, d.old_node, d.old_mode, d.old_attempt FROM d
), e AS (
  UPDATE pawl.run r
     SET outcome = CASE WHEN w.stop THEN 'cancelled' WHEN w.eff = 'dead' THEN 'failed' ELSE 'succeeded' END, ended_at = w.now, cancelling = false,
         result_job = CASE WHEN w.eff = 'gone' AND NOT w.stop THEN w.id END,
         result_token = CASE WHEN w.eff = 'gone' AND NOT w.stop THEN w.token END,
         output = CASE WHEN w.eff = 'gone' AND NOT w.stop THEN w.result END
    FROM w
   WHERE w.shard = @shard::smallint AND w.eff IN ('gone', 'dead') AND r.shard = @shard::smallint AND r.ctid = w.run_tid
  RETURNING r.id
), c AS (
  DELETE FROM pawl.cursor c USING w
   WHERE w.shard = @shard::smallint AND w.cursor_tid IS NOT NULL AND c.shard = @shard::smallint AND c.ctid = w.cursor_tid
  RETURNING c.job
), h AS (
  INSERT INTO pawl.history (shard, run_id, job, token, granted_at, ended_at, node, attempt, owner, request, path, mode, to_state,
                            event, writer, class, code, reason, encoding, output)
  SELECT @shard::smallint, w.run_id, w.id, w.token, w.granted_at, w.now, w.old_node, w.old_attempt, @owner::uuid, w.request, w.path,
         nullif(w.old_mode, 'do'), w.eff, CASE WHEN w.stop AND NOT w.advance THEN 'cancelled' ELSE coalesce(w.more->>'event', 'completed') END,
         w.more->>'writer', w.more->>'class', w.more->>'code', w.more->>'reason',
         CASE WHEN w.output IS NOT NULL THEN @encoding::text END, w.output
    FROM w
  RETURNING job
)
SELECT w.id::bigint AS id, 'done'::text AS verdict, w.eff::text AS state, w.now::timestamptz AS now
  FROM w
UNION ALL
SELECT k.id, CASE WHEN k.fence OR (k.tid IS NULL AND b.id IS NOT NULL) THEN 'busy' ELSE 'lost' END, k.eff, k.now
  FROM k LEFT JOIN LATERAL (SELECT j.id FROM pawl.job j WHERE k.tid IS NULL AND j.shard = @shard::smallint AND j.id >= k.id AND j.id <= k.id
                             ORDER BY j.id LIMIT 1) b ON true
 WHERE k.ok IS NOT TRUE;

-- name: Written :one
-- Who wrote the transition that ended the lease of token-1? The answer to an answer that was lost.
SELECT h.request, h.owner, coalesce(h.writer, 'worker')::text AS writer, h.event FROM pawl.history h
 WHERE h.shard = @shard::smallint AND h.run_id = @run_id AND h.job = @job AND h.token = @token;
