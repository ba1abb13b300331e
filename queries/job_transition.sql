-- name: Transition :many
-- The one statement by which an attempt ends: complete, fail, retry, snooze, uncertain, hand back, settle.
-- Rows are locked in the order of the arrays (sorted in Go), skipping what others hold; then the clock is
-- read and the fence tested; then the job advances in place or goes, its run ends if it is to, and one
-- history row a transition is written. A successor that the same worker may run is leased by the same
-- update. Each item is answered: done, lost, busy (ask again); one that is not answered is busy too.
-- (Ids travel as text, whose arrays the driver sends several times faster than those of uuids.)
--
-- Here and in the other statements rows are looked up by key in a form that keeps its plan whatever the planner
-- believes of the tables (of an emptied one it believes that every scan is free, and of all scans a unique key's the
-- dearest): a range of one key, in the key's order, LIMIT 1: only the key's index gives the order, and nothing joins
-- it from the other side. Found rows are changed by ctid; the constant shard among the found makes the planner expect
-- one of them, so that it does not read the table once for all. Nothing is joined by id that can be handed on.
WITH k AS MATERIALIZED (
  SELECT @shard::smallint AS shard, i.id, i.run_id, i.token, i.request, i.event, i.writer, i.class, i.code, i.reason, i.output, i.result, i.advance, i.mode,
         i.node, i.refs, i.route, i.delay_ms, i.attempt, i.transients, i.unknowns, i.questions, i.lease_ms, i.runtime_ms, i.effect_key, i.effect_hash,
         x.tid, x.state, x.owner, x.granted_at, x.old_node, x.old_path, x.old_mode, x.old_attempt,
         t.now, t.fence, t.stop, r.cancelling, m.tid AS run_tid, p.tid AS cursor_tid,
         CASE WHEN t.stop THEN 'gone' ELSE i.to_state END AS eff, CASE WHEN t.stop THEN 'cancelled' ELSE i.outcome END AS eff_outcome,
         -- A run ends only in the version that this statement's snapshot can update.
         (t.fence AND ((NOT t.stop AND i.outcome = '') OR (m.tid IS NOT NULL AND m.tid = r.seen))) AS ok
    FROM (SELECT unnest(@ids::bigint[]) AS id, unnest(@runs::text[])::uuid AS run_id, unnest(@tokens::bigint[]) AS token,
                 unnest(@requests::text[])::uuid AS request, unnest(@to_states::text[]) AS to_state, unnest(@events::text[]) AS event,
                 unnest(@writers::text[]) AS writer,
                 unnest(@classes::text[]) AS class, unnest(@codes::text[]) AS code, unnest(@reasons::text[]) AS reason,
                 unnest(@outputs::bytea[]) AS output, unnest(@results::bytea[]) AS result, unnest(@outcomes::text[]) AS outcome,
                 unnest(@advances::boolean[]) AS advance, unnest(@modes::text[]) AS mode, unnest(@nodes::int[]) AS node,
                 unnest(@refs::text[]) AS refs, unnest(@routes::int[]) AS route, unnest(@delays_ms::bigint[]) AS delay_ms,
                 unnest(@attempts::int[]) AS attempt, unnest(@transients::int[]) AS transients, unnest(@unknowns::int[]) AS unknowns,
                 unnest(@questions::int[]) AS questions, unnest(@lease_ms::bigint[]) AS lease_ms, unnest(@runtime_ms::bigint[]) AS runtime_ms,
                 unnest(@effect_keys::bytea[]) AS effect_key, unnest(@effect_hashes::bytea[]) AS effect_hash) i
    LEFT JOIN LATERAL (SELECT j.ctid AS tid, j.state, j.owner, j.token, j.expires_at, j.granted_at,
                              j.node AS old_node, j.path AS old_path, j.mode AS old_mode, j.attempt AS old_attempt
                         FROM pawl.job j WHERE j.shard = @shard::smallint AND j.id >= i.id AND j.id <= i.id
                        ORDER BY j.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) x ON true
    LEFT JOIN LATERAL (SELECT q.ctid AS seen, q.cancelling FROM pawl.run q
                        WHERE q.shard = @shard::smallint AND q.id >= i.run_id AND q.id <= i.run_id ORDER BY q.id LIMIT 1) r ON true
    CROSS JOIN LATERAL (SELECT c.now, coalesce(x.state = 'running' AND x.owner = @owner::uuid AND x.token = i.token AND x.expires_at > c.now, false) AS fence,
                               -- A cancelled run ends at the next boundary, unless its last step has just been
                               -- completed or its effect's outcome is still unknown.
                               coalesce(r.cancelling AND i.to_state IN ('pending', 'running', 'dead') AND i.mode <> 'ask', false) AS stop
                          FROM (SELECT pawl.clock() AS now WHERE x.tid IS NULL OR x.tid IS NOT NULL) c) t -- naming x: after locking
    LEFT JOIN LATERAL (SELECT q.ctid AS tid FROM pawl.run q
                        WHERE t.fence AND (t.stop OR i.outcome <> '') AND q.shard = @shard::smallint AND q.id >= i.run_id AND q.id <= i.run_id
                        ORDER BY q.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) m ON true
    LEFT JOIN LATERAL (SELECT c.ctid AS tid FROM pawl.cursor c
                        WHERE t.fence AND (t.stop OR i.advance OR i.to_state = 'gone') AND c.shard = @shard::smallint AND c.job = i.id LIMIT 1) p ON true
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
   WHERE j.shard = @shard::smallint AND j.ctid = k.tid AND k.shard = @shard::smallint AND k.ok AND k.eff <> 'gone'
  RETURNING k.shard, k.id, k.run_id, k.token, k.request, k.event, k.writer, k.class, k.code, k.reason, k.output, k.result, k.advance, k.stop,
            k.run_tid, k.cursor_tid, k.eff, k.eff_outcome, k.now, k.cancelling, k.state, k.owner, k.granted_at, k.old_node, k.old_path, k.old_mode, k.old_attempt,
            j.granted_at AS new_granted_at, j.expires_at AS new_expires_at, j.deadline_at AS new_deadline_at, j.effect_at AS new_effect_at
), d AS (
  DELETE FROM pawl.job j USING k
   WHERE j.shard = @shard::smallint AND j.ctid = k.tid AND k.shard = @shard::smallint AND k.ok AND k.eff = 'gone'
  RETURNING k.shard, k.id, k.run_id, k.token, k.request, k.event, k.writer, k.class, k.code, k.reason, k.output, k.result, k.advance, k.stop,
            k.run_tid, k.cursor_tid, k.eff, k.eff_outcome, k.now, k.cancelling, k.state, k.owner, k.granted_at, k.old_node, k.old_path, k.old_mode, k.old_attempt,
            NULL::timestamptz AS new_granted_at, NULL::timestamptz AS new_expires_at, NULL::timestamptz AS new_deadline_at, NULL::timestamptz AS new_effect_at
), w AS MATERIALIZED (
  SELECT u.shard, u.id, u.run_id, u.token, u.request, u.event, u.writer, u.class, u.code, u.reason, u.output, u.result, u.advance, u.stop, u.run_tid,
         u.cursor_tid, u.eff, u.eff_outcome, u.now, u.cancelling, u.state, u.owner, u.granted_at, u.old_node, u.old_path, u.old_mode, u.old_attempt,
         u.new_granted_at, u.new_expires_at, u.new_deadline_at, u.new_effect_at
    FROM u
  UNION ALL
  SELECT d.shard, d.id, d.run_id, d.token, d.request, d.event, d.writer, d.class, d.code, d.reason, d.output, d.result, d.advance, d.stop, d.run_tid,
         d.cursor_tid, d.eff, d.eff_outcome, d.now, d.cancelling, d.state, d.owner, d.granted_at, d.old_node, d.old_path, d.old_mode, d.old_attempt,
         d.new_granted_at, d.new_expires_at, d.new_deadline_at, d.new_effect_at
    FROM d
), e AS (
  UPDATE pawl.run r
     SET outcome = w.eff_outcome, ended_at = w.now, cancelling = false,
         result_job = CASE WHEN w.eff_outcome = 'succeeded' THEN w.id END,
         result_token = CASE WHEN w.eff_outcome = 'succeeded' THEN w.token + 1 END,
         output = CASE WHEN w.eff_outcome = 'succeeded' THEN w.result END
    FROM w
   WHERE w.shard = @shard::smallint AND w.eff_outcome <> '' AND r.shard = @shard::smallint AND r.ctid = w.run_tid
  RETURNING r.id
), c AS (
  DELETE FROM pawl.cursor c USING w
   WHERE w.shard = @shard::smallint AND c.shard = @shard::smallint AND c.ctid = w.cursor_tid
  RETURNING c.job
), h AS (
  INSERT INTO pawl.history (shard, run_id, job, token, granted_at, ended_at, node, attempt, owner, request, path, mode, from_state, to_state,
                            event, writer, class, code, reason, encoding, output)
  SELECT w.shard, w.run_id, w.id, w.token + 1, w.granted_at, w.now, w.old_node, w.old_attempt, w.owner, w.request, w.old_path,
         w.old_mode, w.state, w.eff, CASE WHEN w.stop AND NOT w.advance THEN 'cancelled' ELSE w.event END, w.writer,
         nullif(w.class, ''), nullif(w.code, ''), nullif(w.reason, ''), CASE WHEN w.output IS NOT NULL THEN @encoding::text END, w.output
    FROM w
  RETURNING job
)
SELECT w.id::bigint AS id, 'done'::text AS verdict, w.eff::text AS state, coalesce(w.cancelling, false)::boolean AS cancelling, w.now::timestamptz AS now,
       w.new_granted_at AS granted_at, w.new_expires_at AS expires_at, w.new_deadline_at AS deadline_at, w.new_effect_at AS effect_at
  FROM w
UNION ALL
SELECT k.id, CASE WHEN k.fence OR (k.tid IS NULL AND b.id IS NOT NULL) THEN 'busy' ELSE 'lost' END, k.eff, coalesce(k.cancelling, false), k.now, NULL, NULL, NULL, NULL
  FROM k LEFT JOIN LATERAL (SELECT j.id FROM pawl.job j WHERE k.tid IS NULL AND j.shard = @shard::smallint AND j.id >= k.id AND j.id <= k.id
                             ORDER BY j.id LIMIT 1) b ON true
 WHERE k.ok IS NOT TRUE;

-- name: Written :one
-- Who wrote the transition that ended the lease of token-1? The answer to an answer that was lost.
SELECT h.request, h.owner, h.writer, h.event FROM pawl.history h
 WHERE h.shard = @shard::smallint AND h.run_id = @run_id AND h.job = @job AND h.token = @token;
