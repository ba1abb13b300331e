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
-- only: these jobs alone; empty: any. The last row, without a state, says how many candidates there were and the
-- last of them: some may have been skipped, since somebody holds their rows, and the next batch begins after.
WITH c AS MATERIALIZED (
  SELECT j.id FROM pawl.job j
   WHERE j.shard = @shard::smallint AND j.id > sqlc.arg(behind)::bigint AND j.state = 'running' AND (coalesce(pg_catalog.cardinality(@only_jobs::bigint[]), 0) = 0 OR j.id = ANY (@only_jobs::bigint[]))
     AND (j.expires_at <= pawl.now() OR NOT EXISTS (SELECT FROM pawl.session s WHERE s.id = j.owner AND s.closed_at IS NULL))
   ORDER BY j.id LIMIT @most::int
), k AS MATERIALIZED (
  SELECT @shard::smallint AS shard, x.tid, x.id, x.run_id, x.token, x.owner, x.granted_at, x.expires_at, x.node, x.path, x.mode, x.attempt,
         x.lapses, x.at_expiry, t.now, t.next, t.stop, m.tid AS run_tid, p.tid AS cursor_tid,
         (p.tid IS NULL OR v.tid = p.tid) AND ((t.next <> 'dead' AND NOT t.stop) OR (m.tid IS NOT NULL AND m.tid = r.seen)) AS ok
    FROM c
    CROSS JOIN LATERAL (SELECT j.ctid AS tid, j.id, j.run_id, j.token, j.owner, j.granted_at, j.expires_at, j.node, j.path, j.mode, j.attempt, j.lapses, j.at_expiry
                          FROM pawl.job j WHERE j.shard = @shard::smallint AND j.id >= c.id AND j.id <= c.id AND j.state = 'running'
                         ORDER BY j.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) x
    LEFT JOIN LATERAL (SELECT q.ctid AS seen, q.cancelling FROM pawl.run q
                        WHERE q.shard = @shard::smallint AND q.id >= x.run_id AND q.id <= x.run_id ORDER BY q.id LIMIT 1) r ON true
    CROSS JOIN LATERAL (SELECT n.now, n.next, (coalesce(r.cancelling, false) AND n.next <> 'uncertain') AS stop
                          FROM (SELECT pawl.clock() AS now,
                                       CASE WHEN x.at_expiry <> 'retry' THEN 'uncertain' WHEN x.lapses + 1 >= @budget::int THEN 'dead' ELSE 'pending' END AS next) n) t
    LEFT JOIN LATERAL (SELECT q.ctid AS tid FROM pawl.run q
                        WHERE (t.next = 'dead' OR t.stop) AND q.shard = @shard::smallint AND q.id >= x.run_id AND q.id <= x.run_id
                        ORDER BY q.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) m ON true
    LEFT JOIN LATERAL (SELECT c.ctid AS tid FROM pawl.cursor c WHERE t.stop AND c.shard = @shard::smallint AND c.job = x.id LIMIT 1) p ON true
    LEFT JOIN LATERAL (SELECT c.ctid AS tid FROM pawl.cursor c
                        WHERE p.tid IS NOT NULL AND c.shard = @shard::smallint AND c.job = x.id LIMIT 1 FOR UPDATE SKIP LOCKED) v ON true
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
   WHERE j.shard = @shard::smallint AND j.ctid = k.tid AND k.shard = @shard::smallint AND k.ok AND NOT k.stop
  RETURNING k.shard, k.id, k.run_id, k.token, k.owner, k.granted_at, k.expires_at, k.node, k.path, k.mode, k.attempt, k.now, k.next, k.stop, k.run_tid, k.cursor_tid,
            j.due_at
), d AS (
  DELETE FROM pawl.job j USING k WHERE j.shard = @shard::smallint AND j.ctid = k.tid AND k.shard = @shard::smallint AND k.ok AND k.stop
  RETURNING k.shard, k.id, k.run_id, k.token, k.owner, k.granted_at, k.expires_at, k.node, k.path, k.mode, k.attempt, k.now, k.next, k.stop, k.run_tid, k.cursor_tid,
            k.now AS due_at
), w AS MATERIALIZED (
  SELECT u.shard, u.id, u.run_id, u.token, u.owner, u.granted_at, u.expires_at, u.node, u.path, u.mode, u.attempt, u.now, u.next, u.stop, u.run_tid,
         u.cursor_tid, u.due_at FROM u
  UNION ALL
  SELECT d.shard, d.id, d.run_id, d.token, d.owner, d.granted_at, d.expires_at, d.node, d.path, d.mode, d.attempt, d.now, d.next, d.stop, d.run_tid,
         d.cursor_tid, d.due_at FROM d
), e AS (
  UPDATE pawl.run r SET outcome = CASE WHEN w.stop THEN 'cancelled' ELSE 'failed' END, ended_at = w.now, cancelling = false
    FROM w WHERE w.shard = @shard::smallint AND (w.stop OR w.next = 'dead') AND r.shard = @shard::smallint AND r.ctid = w.run_tid
  RETURNING r.id
), x AS (
  DELETE FROM pawl.cursor c USING w WHERE w.shard = @shard::smallint AND c.shard = @shard::smallint AND c.ctid = w.cursor_tid RETURNING c.job
), h AS (
  INSERT INTO pawl.history (shard, run_id, job, token, granted_at, ended_at, node, attempt, owner, request, path, mode, to_state,
                            event, writer, class, code, reason)
  SELECT w.shard, w.run_id, w.id, w.token + 1, w.granted_at, w.now, w.node, w.attempt, w.owner, @request::bigint, w.path, nullif(w.mode, 'do'),
         CASE WHEN w.stop THEN 'gone' ELSE w.next END,
         CASE WHEN w.stop THEN 'cancelled' WHEN w.next = 'dead' THEN 'dead' WHEN w.next = 'uncertain' THEN 'uncertain' ELSE 'lapsed' END,
         'recovery', 'lapse', 'LEASE_EXPIRED',
         CASE WHEN w.expires_at <= w.now THEN 'the lease expired without progress, or the attempt reached its max runtime'
              ELSE 'the session of its worker lapsed or was closed' END
    FROM w
  RETURNING job
)
SELECT w.id, w.run_id, w.token, w.attempt, (CASE WHEN w.stop THEN 'gone' ELSE w.next END)::text AS state,
       greatest(0, extract(epoch FROM least(w.due_at, '9999-01-01 00:00:00+00') - w.now) * 1000)::bigint AS due_in_ms,
       w.node, w.path, w.mode, w.granted_at, r.workflow, r.definition, r.traceparent, r.tracestate
  FROM w, LATERAL (SELECT q.workflow, q.definition, q.traceparent, q.tracestate FROM pawl.run q
                    WHERE q.shard = @shard::smallint AND q.id >= w.run_id AND q.id <= w.run_id ORDER BY q.id LIMIT 1) r
UNION ALL
SELECT coalesce(max(c.id), 0), '00000000-0000-0000-0000-000000000000', count(*), 0, '', 0, 0, '', '', NULL, '', 0, '', '' FROM c;

-- name: Lapsed :many
-- The candidates of Recover, where one of them has to be found that it can't take back.
SELECT j.id, j.run_id FROM pawl.job j
 WHERE j.shard = @shard::smallint AND j.state = 'running'
   AND (j.expires_at <= pawl.now() OR NOT EXISTS (SELECT FROM pawl.session s WHERE s.id = j.owner AND s.closed_at IS NULL))
 ORDER BY j.id LIMIT 10000;

-- name: AskDue :many
-- The reconciler: uncertain jobs whose next question is due become claimable, in mode ask.
WITH l AS MATERIALIZED (
  SELECT j.ctid AS tid, j.id, j.run_id, j.token, j.node, j.path, j.attempt FROM pawl.job j
   WHERE j.shard = @shard::smallint AND j.state = 'uncertain' AND j.due_at <= pawl.now()
   ORDER BY j.due_at, j.id LIMIT @most::int FOR NO KEY UPDATE SKIP LOCKED
), f AS MATERIALIZED (
  SELECT @shard::smallint AS shard, l.tid, l.id, l.run_id, l.token, l.node, l.path, l.attempt, pawl.clock() AS now FROM l
), u AS (
  UPDATE pawl.job j SET state = 'pending', mode = 'ask', token = j.token + 1, due_at = f.now
    FROM f WHERE j.shard = @shard::smallint AND j.ctid = f.tid AND f.shard = @shard::smallint
  RETURNING f.shard, f.run_id, f.node, f.path, f.attempt, f.now, j.id, j.token
), h AS (
  INSERT INTO pawl.history (shard, run_id, job, token, ended_at, node, attempt, request, path, mode, from_state, to_state, event, writer)
  SELECT u.shard, u.run_id, u.id, u.token, u.now, u.node, u.attempt, @request::bigint, u.path, NULL, 'uncertain', 'pending', 'asking', 'reconciler'
    FROM u
  RETURNING job
)
SELECT u.id, u.token FROM u;

-- name: CloseCancelled :many
-- Ends cancelled runs whose job waits (pending, or dead) rather than runs. Jobs before runs: lock order.
-- What is uncertain is reconciled first; what runs ends at its next boundary.
WITH c AS MATERIALIZED (
  SELECT r.id AS run_id FROM pawl.run r
   WHERE r.shard = @shard::smallint AND r.cancelling AND r.id >= @only_run::uuid
     AND r.id <= CASE WHEN @only_run::uuid = '00000000-0000-0000-0000-000000000000' THEN 'ffffffff-ffff-ffff-ffff-ffffffffffff' ELSE @only_run::uuid END
     -- Not EXISTS: made into a join, it has no key to look up by.
     AND (SELECT j.id FROM pawl.job j WHERE j.shard = @shard::smallint AND j.run_id >= r.id AND j.run_id <= r.id
             AND j.mode <> 'ask' AND j.state IN ('pending', 'dead') ORDER BY j.run_id LIMIT 1) IS NOT NULL
   ORDER BY r.id LIMIT @most::int
), f AS MATERIALIZED (
  SELECT @shard::smallint AS shard, x.tid, x.id, x.run_id, x.token, x.state, x.node, x.path, x.mode, x.attempt, t.now, r.seen, m.tid AS run_tid, p.tid AS cursor_tid
    FROM c
    CROSS JOIN LATERAL (SELECT j.ctid AS tid, j.id, j.run_id, j.token, j.state, j.node, j.path, j.mode, j.attempt
                          FROM pawl.job j
                         WHERE j.shard = @shard::smallint AND j.run_id >= c.run_id AND j.run_id <= c.run_id AND j.state IN ('pending', 'dead') AND j.mode <> 'ask'
                         ORDER BY j.run_id, j.id FOR NO KEY UPDATE SKIP LOCKED) x
    CROSS JOIN LATERAL (SELECT pawl.clock() AS now WHERE x.tid IS NOT NULL) t
    LEFT JOIN LATERAL (SELECT q.ctid AS seen FROM pawl.run q
                        WHERE q.shard = @shard::smallint AND q.id >= x.run_id AND q.id <= x.run_id ORDER BY q.id LIMIT 1) r ON true
    LEFT JOIN LATERAL (SELECT q.ctid AS tid FROM pawl.run q
                        WHERE q.shard = @shard::smallint AND q.id >= x.run_id AND q.id <= x.run_id AND q.cancelling
                        ORDER BY q.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) m ON true
    LEFT JOIN LATERAL (SELECT c.ctid AS tid FROM pawl.cursor c WHERE c.shard = @shard::smallint AND c.job = x.id LIMIT 1) p ON true
    LEFT JOIN LATERAL (SELECT c.ctid AS tid FROM pawl.cursor c
                        WHERE p.tid IS NOT NULL AND c.shard = @shard::smallint AND c.job = x.id LIMIT 1 FOR UPDATE SKIP LOCKED) v ON true
   WHERE p.tid IS NULL OR v.tid = p.tid
), d AS (
  DELETE FROM pawl.job j USING f WHERE j.shard = @shard::smallint AND j.ctid = f.tid AND f.shard = @shard::smallint AND f.run_tid = f.seen
  RETURNING f.shard, f.id, f.run_id, f.token, f.state, f.node, f.path, f.mode, f.attempt, f.now, f.run_tid, f.cursor_tid
), e AS (
  UPDATE pawl.run r SET outcome = 'cancelled', ended_at = d.now, cancelling = false
    FROM d WHERE d.shard = @shard::smallint AND r.shard = @shard::smallint AND r.ctid = d.run_tid
  RETURNING r.id
), x AS (
  DELETE FROM pawl.cursor c USING d WHERE d.shard = @shard::smallint AND c.shard = @shard::smallint AND c.ctid = d.cursor_tid RETURNING c.job
), h AS (
  INSERT INTO pawl.history (shard, run_id, job, token, ended_at, node, attempt, request, path, mode, from_state, to_state, event, writer)
  SELECT d.shard, d.run_id, d.id, d.token + 1, d.now, d.node, d.attempt, @request::bigint, d.path, nullif(d.mode, 'do'), d.state, 'gone', 'cancelled', 'recovery'
    FROM d
  RETURNING job
)
SELECT e.id FROM e;

-- name: LeasedTo :many
-- What stands under an owner: after a claim whose answer was lost, to be handed back.
SELECT j.id, j.run_id, j.token, j.route, j.node, j.path, j.refs, j.mode, j.attempt, j.transients, j.unknowns, j.questions
  FROM pawl.job j WHERE j.shard = @shard::smallint AND j.state = 'running' AND j.owner = @owner::uuid ORDER BY j.id LIMIT 10000;
