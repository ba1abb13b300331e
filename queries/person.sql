-- Acts of people. Each is one transaction that locks jobs before runs, writes who and why, and wakes workers.

-- name: Cancel :one
-- Sets the flag, under the run's row lock only. Ended runs are left as they are.
WITH r AS (
  UPDATE pawl.run r SET cancelling = true, cancelled_by = @actor::text, cancel_reason = @reason::text
   WHERE r.shard = @shard::smallint AND r.id = @id AND r.outcome IS NULL AND NOT r.cancelling
  RETURNING r.shard, r.id, r.workflow, r.key
)
INSERT INTO pawl.audit (acted_at, actor, act, shard, run_id, workflow, key, reason)
SELECT pawl.clock(), @actor::text, 'cancel', r.shard, r.id, r.workflow, r.key, @reason::text FROM r
RETURNING run_id::uuid AS run_id;

-- name: RunState :one
SELECT r.workflow, r.outcome, r.cancelling FROM pawl.run r WHERE r.shard = @shard::smallint AND r.id >= @id AND r.id <= @id ORDER BY r.id LIMIT 1;

-- name: LockJobsOfRun :many
-- Waits for the jobs of a run, then (LockRun) for the run.
SELECT j.id, j.node, j.path, j.state, j.mode, j.token, j.refs, j.effect_at, j.effect_key FROM pawl.job j
 WHERE j.shard = @shard::smallint AND j.run_id >= @run_id AND j.run_id <= @run_id ORDER BY j.run_id, j.id FOR NO KEY UPDATE;

-- name: NewestOfKey :many
-- The run that the key of a run has started last.
SELECT k.run_id
  FROM (SELECT q.shard, q.workflow, q.ordering, q.key FROM pawl.run q
         WHERE q.shard = @shard::smallint AND q.id >= @id AND q.id <= @id AND q.key IS NOT NULL ORDER BY q.id LIMIT 1) r
  CROSS JOIN LATERAL (SELECT e.run_id FROM pawl.key e
         WHERE e.shard = r.shard AND e.workflow = r.workflow AND e.ordering = r.ordering AND e.key = r.key LIMIT 1) k;

-- name: ReplayJob :one
-- A dead job is due again: same identity, budgets anew. With a corrected input (recorded in the history row, and
-- referred to) its effect is another effect: the generation rises and the key is made anew, and a long step begins
-- anew: its cursor was a place in the other input. What a person said of its effect stays said.
WITH u AS (
  UPDATE pawl.job j
     SET state = 'pending', mode = CASE WHEN j.mode = 'settled' THEN 'settled' ELSE 'do' END, token = j.token + 1, due_at = pawl.clock(), lapses = 0, transients = 0, unknowns = 0, questions = 0,
         failed_at = NULL, uncertain_at = NULL, refs = @refs::text,
         cursor_seq = CASE WHEN @corrected::boolean THEN 0 ELSE j.cursor_seq END,
         effect_gen = j.effect_gen + CASE WHEN @corrected::boolean THEN 1 ELSE 0 END,
         effect_key = CASE WHEN @corrected::boolean THEN NULL ELSE j.effect_key END,
         effect_hash = CASE WHEN @corrected::boolean THEN NULL ELSE j.effect_hash END,
         effect_at = CASE WHEN @corrected::boolean THEN NULL ELSE j.effect_at END
    FROM (SELECT @shard::smallint AS shard, x.ctid AS tid FROM pawl.job x
           WHERE x.shard = @shard::smallint AND x.id >= @id AND x.id <= @id ORDER BY x.id LIMIT 1) l
   WHERE j.shard = @shard::smallint AND j.ctid = l.tid AND l.shard = @shard::smallint AND j.state = 'dead' AND j.token = @token
  RETURNING j.shard, j.id, j.run_id, j.token, j.due_at, j.node, j.attempt, j.path, j.mode
), r AS (
  UPDATE pawl.run r SET outcome = NULL, ended_at = NULL
    FROM u, LATERAL (SELECT q.ctid AS tid FROM pawl.run q
                      WHERE q.shard = @shard::smallint AND q.id >= u.run_id AND q.id <= u.run_id ORDER BY q.id LIMIT 1) l
   WHERE r.shard = @shard::smallint AND r.ctid = l.tid AND r.outcome = 'failed'
  RETURNING r.id
), c AS (
  DELETE FROM pawl.cursor c USING u WHERE @corrected::boolean AND c.shard = @shard::smallint AND c.job = u.id
  RETURNING c.job
), h AS (
  INSERT INTO pawl.history (shard, run_id, job, token, ended_at, node, attempt, request, path, mode, from_state, to_state, event, writer,
                            actor, reason, evidence, encoding, output)
  SELECT u.shard, u.run_id, u.id, u.token, u.due_at, u.node, u.attempt, @request::bigint, u.path, nullif(u.mode, 'do'), 'dead', 'pending', 'replayed', 'person',
         @actor::text, @reason::text, nullif(@evidence::text, ''), CASE WHEN @corrected::boolean THEN @encoding::text END,
         CASE WHEN @corrected::boolean THEN @input::bytea END
    FROM u RETURNING job
)
SELECT u.id, u.token, EXISTS (SELECT FROM r)::boolean AS reopened FROM u;

-- name: ResolveJob :one
-- A person settles an uncertain effect: it happened (a worker carries on from the output given), or it never
-- did and the step is tried again with the same key, which counts from its next grant.
WITH u AS (
  UPDATE pawl.job j
     SET state = 'pending', mode = CASE WHEN @happened::boolean THEN 'settled' ELSE 'do' END, token = j.token + 1, due_at = pawl.clock(),
         lapses = 0, transients = 0, unknowns = 0, questions = 0, failed_at = NULL, uncertain_at = NULL, refs = @refs::text,
         effect_key = CASE WHEN @happened::boolean THEN j.effect_key END, effect_hash = CASE WHEN @happened::boolean THEN j.effect_hash END,
         effect_at = CASE WHEN @happened::boolean THEN j.effect_at END
    FROM (SELECT @shard::smallint AS shard, x.ctid AS tid FROM pawl.job x
           WHERE x.shard = @shard::smallint AND x.id >= @id AND x.id <= @id ORDER BY x.id LIMIT 1) l
   WHERE j.shard = @shard::smallint AND j.ctid = l.tid AND l.shard = @shard::smallint AND j.token = @token
     AND (j.state = 'uncertain' OR (j.state = 'pending' AND j.mode = 'ask'))
  RETURNING j.shard, j.id, j.run_id, j.token, j.due_at, j.node, j.attempt, j.path, j.mode
), h AS (
  INSERT INTO pawl.history (shard, run_id, job, token, ended_at, node, attempt, request, path, mode, from_state, to_state, event, writer,
                            actor, reason, evidence, encoding, output)
  SELECT u.shard, u.run_id, u.id, u.token, u.due_at, u.node, u.attempt, @request::bigint, u.path, nullif(u.mode, 'do'), 'uncertain', 'pending', 'resolved', 'person',
         @actor::text, @reason::text, @evidence::text, CASE WHEN @happened::boolean THEN @encoding::text END,
         CASE WHEN @happened::boolean THEN @output::bytea END
    FROM u RETURNING job
)
SELECT u.id, u.token FROM u;

-- name: KeepEvidence :exec
-- A result that came after its lease was lost: kept, and nothing else.
INSERT INTO pawl.evidence (shard, run_id, job, token, attempt, node, path, owner, came_at, class, code, reason, encoding, output)
VALUES (@shard, @run_id, @job, @token, @attempt, @node, @path, @owner, pawl.clock(), nullif(@class::text, ''), nullif(@code::text, ''),
        nullif(@reason::text, ''), nullif(@encoding::text, ''), @output::bytea);

-- name: LateOutput :many
-- The newest output that came late for this place's effect.
SELECT e.encoding, e.output FROM pawl.evidence e
 WHERE e.shard = @shard::smallint AND e.run_id = @run_id AND e.job = @job AND e.node = @node AND e.class IS NULL AND e.output IS NOT NULL
 ORDER BY e.id DESC LIMIT 1;
