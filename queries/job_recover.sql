-- name: CloseLapsed :many
-- Closes sessions that have lapsed. Under the row's lock, never reopened.
WITH l AS MATERIALIZED (
  SELECT s.ctid AS tid, s.id FROM pawl.session s WHERE s.closed_at IS NULL AND s.expires_at <= pawl.now()
   ORDER BY s.id LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED
), f AS MATERIALIZED (SELECT l.tid, pawl.clock() AS now FROM l)
UPDATE pawl.session s SET closed_at = f.now FROM f WHERE s.ctid = f.tid RETURNING s.id, s.name;

-- name: Recover :many
-- Takes back jobs whose lease has expired or whose owner's session is closed, by what the row alone says:
-- due again (the first lapse without delay, then with jittered backoff), dead when the budget of lapses is
-- spent, uncertain where an effect may have happened. The candidates are only a hint: each is locked and
-- tested again here, in the statement that acts. A run that must end is ended under its row's lock.
WITH c AS MATERIALIZED (
  SELECT j.id FROM pawl.job j
   WHERE j.shard = @shard::smallint AND j.state = 'running'
     AND (j.expires_at <= pawl.now() OR NOT EXISTS (SELECT FROM pawl.session s WHERE s.id = j.owner AND s.closed_at IS NULL))
   ORDER BY j.id LIMIT @most::int
), k AS MATERIALIZED (
  SELECT x.tid, x.id, x.run_id, x.token, x.owner, x.granted_at, x.expires_at, x.node, x.path, x.mode, x.attempt, x.lapses, x.at_expiry,
         t.now, t.next, t.stop, m.tid AS run_tid,
         ((t.next <> 'dead' AND NOT t.stop) OR (m.tid IS NOT NULL AND m.tid = r.seen)) AS ok
    FROM c
    CROSS JOIN LATERAL (SELECT j.ctid AS tid, j.id, j.run_id, j.token, j.owner, j.granted_at, j.expires_at, j.node, j.path, j.mode, j.attempt, j.lapses, j.at_expiry
                          FROM pawl.job j WHERE j.shard = @shard::smallint AND j.id = c.id AND j.state = 'running'
                           FOR NO KEY UPDATE SKIP LOCKED) x
    LEFT JOIN LATERAL (SELECT q.ctid AS seen, q.cancelling FROM pawl.run q WHERE q.shard = @shard::smallint AND q.id = x.run_id) r ON true
    CROSS JOIN LATERAL (SELECT n.now, n.next, (coalesce(r.cancelling, false) AND n.next <> 'uncertain') AS stop
                          FROM (SELECT pawl.clock() AS now,
                                       CASE WHEN x.at_expiry <> 'retry' THEN 'uncertain' WHEN x.lapses + 1 >= @budget::int THEN 'dead' ELSE 'pending' END AS next) n) t
    LEFT JOIN LATERAL (SELECT q.ctid AS tid FROM pawl.run q
                        WHERE (t.next = 'dead' OR t.stop) AND q.shard = @shard::smallint AND q.id = x.run_id
                          FOR NO KEY UPDATE SKIP LOCKED) m ON true
   WHERE x.expires_at <= t.now OR NOT EXISTS (SELECT FROM pawl.session s WHERE s.id = x.owner AND s.closed_at IS NULL)
), u AS (
  UPDATE pawl.job j
     SET state = k.next, token = j.token + 1, owner = NULL, granted_at = NULL, expires_at = NULL, deadline_at = NULL,
         begun = false, at_expiry = 'retry', code = 'LEASE_EXPIRED', lapses = j.lapses + 1,
         mode = CASE WHEN k.next = 'uncertain' THEN 'do' ELSE j.mode END,
         uncertain_at = CASE WHEN k.next = 'uncertain' THEN coalesce(j.uncertain_at, k.now) END,
         due_at = CASE WHEN k.next = 'dead' THEN j.due_at
                       WHEN k.at_expiry = 'person' OR (k.next = 'uncertain' AND j.lapses + 1 >= @budget::int) THEN 'infinity'
                       WHEN k.lapses = 0 THEN k.now
                       ELSE pawl.after(k.now, (least(60000, sqlc.arg(base_ms)::bigint * 2 ^ least(k.lapses, 20)) * sqlc.arg(jitter)::float8)::bigint) END
    FROM k
   WHERE j.shard = @shard::smallint AND j.ctid = k.tid AND k.ok AND NOT k.stop
  RETURNING j.id, j.due_at
), d AS (
  DELETE FROM pawl.job j USING k WHERE j.shard = @shard::smallint AND j.ctid = k.tid AND k.ok AND k.stop RETURNING j.id
), w AS MATERIALIZED (
  SELECT u.id FROM u UNION ALL SELECT d.id FROM d
), e AS (
  UPDATE pawl.run r SET outcome = CASE WHEN k.stop THEN 'cancelled' ELSE 'failed' END, ended_at = k.now, cancelling = false
    FROM k, w WHERE w.id = k.id AND (k.stop OR k.next = 'dead') AND r.shard = @shard::smallint AND r.ctid = k.run_tid
  RETURNING r.id
), x AS (
  DELETE FROM pawl.cursor c USING d WHERE c.shard = @shard::smallint AND c.job = d.id RETURNING c.job
), h AS (
  INSERT INTO pawl.history (shard, run_id, job, token, granted_at, ended_at, node, attempt, owner, request, path, mode, from_state, to_state,
                            event, writer, class, code, reason)
  SELECT @shard::smallint, k.run_id, k.id, k.token + 1, k.granted_at, k.now, k.node, k.attempt, k.owner, @request::uuid, k.path, k.mode,
         'running', CASE WHEN k.stop THEN 'gone' ELSE k.next END,
         CASE WHEN k.stop THEN 'cancelled' WHEN k.next = 'dead' THEN 'dead' WHEN k.next = 'uncertain' THEN 'uncertain' ELSE 'lapsed' END,
         'recovery', 'lapse', 'LEASE_EXPIRED',
         CASE WHEN k.expires_at <= k.now THEN 'the lease expired without progress, or the attempt reached its max runtime'
              ELSE 'the session of its worker lapsed or was closed' END
    FROM k, w WHERE w.id = k.id
  RETURNING job
)
SELECT k.id, k.run_id, k.token, k.attempt, (CASE WHEN k.stop THEN 'gone' ELSE k.next END)::text AS state,
       greatest(0, extract(epoch FROM least(coalesce(u.due_at, k.now), '9999-01-01 00:00:00+00') - k.now) * 1000)::bigint AS due_in_ms
  FROM k JOIN w ON w.id = k.id LEFT JOIN u ON u.id = k.id;

-- name: AskDue :many
-- The reconciler: uncertain jobs whose next question is due become claimable, in mode ask.
WITH l AS MATERIALIZED (
  SELECT j.ctid AS tid, j.id, j.run_id, j.token, j.node, j.path, j.attempt FROM pawl.job j
   WHERE j.shard = @shard::smallint AND j.state = 'uncertain' AND j.due_at <= pawl.now()
   ORDER BY j.due_at, j.id LIMIT @most::int FOR NO KEY UPDATE SKIP LOCKED
), f AS MATERIALIZED (
  SELECT l.tid, l.id, l.run_id, l.token, l.node, l.path, l.attempt, pawl.clock() AS now FROM l
), u AS (
  UPDATE pawl.job j SET state = 'pending', mode = 'ask', token = j.token + 1, due_at = f.now
    FROM f WHERE j.shard = @shard::smallint AND j.ctid = f.tid
  RETURNING j.id, j.token
), h AS (
  INSERT INTO pawl.history (shard, run_id, job, token, ended_at, node, attempt, request, path, mode, from_state, to_state, event, writer)
  SELECT @shard::smallint, f.run_id, f.id, f.token + 1, f.now, f.node, f.attempt, @request::uuid, f.path, 'do', 'uncertain', 'pending', 'asking', 'reconciler'
    FROM f, u WHERE u.id = f.id
  RETURNING job
)
SELECT u.id, u.token FROM u;

-- name: CloseCancelled :many
-- Ends cancelled runs whose job waits (pending, or dead) rather than runs. Jobs before runs: lock order.
-- What is uncertain is reconciled first; what runs ends at its next boundary.
WITH c AS MATERIALIZED (
  SELECT r.id AS run_id FROM pawl.run r WHERE r.shard = @shard::smallint AND r.cancelling AND (@only_run::uuid = '00000000-0000-0000-0000-000000000000' OR r.id = @only_run::uuid)
   ORDER BY r.id LIMIT @most::int
), f AS MATERIALIZED (
  SELECT x.tid, x.id, x.run_id, x.token, x.state, x.node, x.path, x.mode, x.attempt, t.now, r.seen, m.tid AS run_tid
    FROM c
    CROSS JOIN LATERAL (SELECT j.ctid AS tid, j.id, j.run_id, j.token, j.state, j.node, j.path, j.mode, j.attempt
                          FROM pawl.job j WHERE j.shard = @shard::smallint AND j.run_id = c.run_id AND j.state IN ('pending', 'dead') AND j.mode <> 'ask'
                         ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED) x
    CROSS JOIN LATERAL (SELECT pawl.clock() AS now WHERE x.tid IS NOT NULL) t
    LEFT JOIN LATERAL (SELECT q.ctid AS seen FROM pawl.run q WHERE q.shard = @shard::smallint AND q.id = x.run_id) r ON true
    LEFT JOIN LATERAL (SELECT q.ctid AS tid FROM pawl.run q WHERE q.shard = @shard::smallint AND q.id = x.run_id AND q.cancelling
                          FOR NO KEY UPDATE SKIP LOCKED) m ON true
), d AS (
  DELETE FROM pawl.job j USING f WHERE j.shard = @shard::smallint AND j.ctid = f.tid AND f.run_tid = f.seen RETURNING j.id
), e AS (
  UPDATE pawl.run r SET outcome = 'cancelled', ended_at = f.now, cancelling = false
    FROM f, d WHERE d.id = f.id AND r.shard = @shard::smallint AND r.ctid = f.run_tid
  RETURNING r.id
), x AS (
  DELETE FROM pawl.cursor c USING d WHERE c.shard = @shard::smallint AND c.job = d.id RETURNING c.job
), h AS (
  INSERT INTO pawl.history (shard, run_id, job, token, ended_at, node, attempt, request, path, mode, from_state, to_state, event, writer)
  SELECT @shard::smallint, f.run_id, f.id, f.token + 1, f.now, f.node, f.attempt, @request::uuid, f.path, f.mode, f.state, 'gone', 'cancelled', 'recovery'
    FROM f, d WHERE d.id = f.id
  RETURNING job
)
SELECT e.id FROM e;

-- name: LeasedTo :many
-- What stands under an owner: after a claim whose answer was lost, to be handed back.
SELECT j.id, j.run_id, j.token, j.route, j.node, j.path, j.refs, j.mode, j.attempt, j.transients, j.unknowns, j.questions
  FROM pawl.job j WHERE j.shard = @shard::smallint AND j.state = 'running' AND j.owner = @owner::uuid ORDER BY j.id LIMIT 10000;
