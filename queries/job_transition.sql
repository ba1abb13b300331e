-- name: Transition :many
-- The one statement by which an attempt ends: complete, fail, retry, snooze, uncertain, hand back, settle.
-- Rows are locked in the order of the arrays (sorted in Go), skipping what others hold; then the clock is
-- read and the fence tested; then the job advances in place or goes, its run ends if it is to, and one
-- history row a transition is written. A successor that the same worker may run is leased by the same
-- update. Each item is answered: done, busy (ask again), lost.
WITH k AS MATERIALIZED (
  SELECT i.id, i.run_id, i.token, i.request, i.event, i.writer, i.class, i.code, i.reason, i.output, i.result, i.advance, i.mode,
         i.node, i.refs, i.route, i.delay_ms, i.attempt, i.transients, i.unknowns, i.questions, i.lease_ms, i.runtime_ms, i.effect_key, i.effect_hash,
         x.tid, x.state, x.owner, x.granted_at, x.old_node, x.old_path, x.old_mode, x.old_attempt, x.cursor_seq,
         t.now, t.fence, t.stop, r.cancelling, m.tid AS run_tid,
         CASE WHEN t.stop THEN 'gone' ELSE i.to_state END AS eff, CASE WHEN t.stop THEN 'cancelled' ELSE i.outcome END AS eff_outcome,
         -- A run ends only in the version that this statement's snapshot can update.
         (t.fence AND ((NOT t.stop AND i.outcome = '') OR (m.tid IS NOT NULL AND m.tid = r.seen))) AS ok
    FROM (SELECT unnest(@ids::bigint[]) AS id, unnest(@runs::uuid[]) AS run_id, unnest(@tokens::bigint[]) AS token,
                 unnest(@requests::uuid[]) AS request, unnest(@to_states::text[]) AS to_state, unnest(@events::text[]) AS event,
                 unnest(@writers::text[]) AS writer,
                 unnest(@classes::text[]) AS class, unnest(@codes::text[]) AS code, unnest(@reasons::text[]) AS reason,
                 unnest(@outputs::bytea[]) AS output, unnest(@results::bytea[]) AS result, unnest(@outcomes::text[]) AS outcome,
                 unnest(@advances::boolean[]) AS advance, unnest(@modes::text[]) AS mode, unnest(@nodes::int[]) AS node,
                 unnest(@refs::text[]) AS refs, unnest(@routes::int[]) AS route, unnest(@delays_ms::bigint[]) AS delay_ms,
                 unnest(@attempts::int[]) AS attempt, unnest(@transients::int[]) AS transients, unnest(@unknowns::int[]) AS unknowns,
                 unnest(@questions::int[]) AS questions, unnest(@lease_ms::bigint[]) AS lease_ms, unnest(@runtime_ms::bigint[]) AS runtime_ms,
                 unnest(@effect_keys::bytea[]) AS effect_key, unnest(@effect_hashes::bytea[]) AS effect_hash) i
    LEFT JOIN LATERAL (SELECT j.ctid AS tid, j.state, j.owner, j.token, j.expires_at, j.granted_at,
                              j.node AS old_node, j.path AS old_path, j.mode AS old_mode, j.attempt AS old_attempt, j.cursor_seq
                         FROM pawl.job j WHERE j.shard = @shard::smallint AND j.id = i.id
                          FOR NO KEY UPDATE SKIP LOCKED) x ON true
    LEFT JOIN LATERAL (SELECT q.ctid AS seen, q.cancelling FROM pawl.run q WHERE q.shard = @shard::smallint AND q.id = i.run_id) r ON true
    CROSS JOIN LATERAL (SELECT c.now, coalesce(x.state = 'running' AND x.owner = @owner::uuid AND x.token = i.token AND x.expires_at > c.now, false) AS fence,
                               -- A cancelled run ends at the next boundary, unless its last step has just been
                               -- completed or its effect's outcome is still unknown.
                               coalesce(r.cancelling AND i.to_state IN ('pending', 'running', 'dead') AND i.mode <> 'ask', false) AS stop
                          FROM (SELECT pawl.clock() AS now WHERE x.tid IS NULL OR x.tid IS NOT NULL) c) t -- naming x: after locking
    LEFT JOIN LATERAL (SELECT q.ctid AS tid FROM pawl.run q
                        WHERE t.fence AND (t.stop OR i.outcome <> '') AND q.shard = @shard::smallint AND q.id = i.run_id
                          FOR NO KEY UPDATE SKIP LOCKED) m ON true
), u AS (
  UPDATE pawl.job j
     SET state = k.eff, mode = k.mode, token = j.token + 1, node = k.node, refs = k.refs,
         route = k.route,
         due_at = CASE WHEN k.eff IN ('running', 'dead') THEN j.due_at WHEN k.delay_ms < 0 THEN 'infinity' ELSE pawl.after(k.now, k.delay_ms) END,
         owner = CASE WHEN k.eff = 'running' THEN j.owner END,
         granted_at = CASE WHEN k.eff = 'running' THEN k.now END,
         expires_at = CASE WHEN k.eff = 'running' THEN pawl.after(k.now, k.lease_ms) END,
         deadline_at = CASE WHEN k.eff = 'running' THEN pawl.after(k.now, k.runtime_ms) END,
         at_expiry = 'retry', begun = false,
         attempt = k.attempt, transients = k.transients, unknowns = k.unknowns, questions = k.questions,
         lapses = CASE WHEN k.advance THEN 0 ELSE j.lapses END,
         cursor_seq = CASE WHEN k.advance THEN 0 ELSE j.cursor_seq END,
         failed_at = CASE WHEN k.advance THEN NULL WHEN k.event = 'retried' OR k.event = 'repeat' THEN coalesce(j.failed_at, k.now) ELSE j.failed_at END,
         uncertain_at = CASE WHEN k.eff = 'uncertain' THEN coalesce(j.uncertain_at, k.now) WHEN k.mode = 'ask' THEN j.uncertain_at END,
         code = CASE WHEN k.advance THEN NULL ELSE coalesce(nullif(k.code, ''), j.code) END,
         effect_gen = CASE WHEN k.advance THEN 0 ELSE j.effect_gen END,
         effect_key = CASE WHEN k.advance THEN k.effect_key ELSE j.effect_key END,
         effect_hash = CASE WHEN k.advance THEN k.effect_hash ELSE j.effect_hash END,
         effect_at = CASE WHEN NOT k.advance THEN j.effect_at WHEN k.effect_key IS NOT NULL THEN k.now END
    FROM k
   WHERE j.shard = @shard::smallint AND j.ctid = k.tid AND k.ok AND k.eff <> 'gone'
  RETURNING j.id, j.granted_at, j.expires_at, j.deadline_at, j.effect_at
), d AS (
  DELETE FROM pawl.job j USING k
   WHERE j.shard = @shard::smallint AND j.ctid = k.tid AND k.ok AND k.eff = 'gone'
  RETURNING j.id
), w AS MATERIALIZED (
  SELECT u.id FROM u UNION ALL SELECT d.id FROM d
), e AS (
  UPDATE pawl.run r
     SET outcome = k.eff_outcome, ended_at = k.now, cancelling = false,
         result_job = CASE WHEN k.eff_outcome = 'succeeded' THEN k.id END,
         result_token = CASE WHEN k.eff_outcome = 'succeeded' THEN k.token + 1 END,
         output = CASE WHEN k.eff_outcome = 'succeeded' THEN k.result END
    FROM k, w
   WHERE w.id = k.id AND k.eff_outcome <> '' AND r.shard = @shard::smallint AND r.ctid = k.run_tid
  RETURNING r.id
), c AS (
  DELETE FROM pawl.cursor c USING k, w
   WHERE w.id = k.id AND (k.advance OR k.eff = 'gone') AND k.cursor_seq > 0 AND c.shard = @shard::smallint AND c.job = k.id
  RETURNING c.job
), h AS (
  INSERT INTO pawl.history (shard, run_id, job, token, granted_at, ended_at, node, attempt, owner, request, path, mode, from_state, to_state,
                            event, writer, class, code, reason, encoding, output)
  SELECT @shard::smallint, k.run_id, k.id, k.token + 1, k.granted_at, k.now, k.old_node, k.old_attempt, k.owner, k.request, k.old_path,
         k.old_mode, k.state, k.eff, CASE WHEN k.stop AND NOT k.advance THEN 'cancelled' ELSE k.event END, k.writer,
         nullif(k.class, ''), nullif(k.code, ''), nullif(k.reason, ''), CASE WHEN k.output IS NOT NULL THEN @encoding::text END, k.output
    FROM k, w WHERE w.id = k.id
  RETURNING job
)
SELECT k.id::bigint AS id,
       (CASE WHEN w.id IS NOT NULL THEN 'done' WHEN k.tid IS NULL AND b.id IS NOT NULL THEN 'busy' WHEN k.fence THEN 'busy' ELSE 'lost' END)::text AS verdict,
       k.eff::text AS state, coalesce(k.cancelling, false)::boolean AS cancelling, k.now::timestamptz AS now,
       u.granted_at, u.expires_at, u.deadline_at, u.effect_at
  FROM k LEFT JOIN w ON w.id = k.id LEFT JOIN u ON u.id = k.id
    LEFT JOIN LATERAL (SELECT j.id FROM pawl.job j WHERE k.tid IS NULL AND j.shard = @shard::smallint AND j.id = k.id) b ON true;

-- name: Written :one
-- Who wrote the transition that ended the lease of token-1? The answer to an answer that was lost.
SELECT h.request, h.owner, h.writer, h.event FROM pawl.history h
 WHERE h.shard = @shard::smallint AND h.run_id = @run_id AND h.job = @job AND h.token = @token;
