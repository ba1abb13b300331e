-- name: StartRuns :many
-- In a transaction of the user's his search_path rules until the function is entered: no operator and no
-- function of another schema here.
SELECT s.ord, s.run_id, s.existed, s.same
  FROM pawl.start_runs(@workflow::text, @inputs::bytea[], @encoding::text, @keys::text[], @ordering::text, @tags::text[], @priority::smallint,
                       @due::timestamptz, @delay_ms::bigint, @traceparents::text[], @tracestates::text[], @reuse_ms::bigint) AS s
 ORDER BY s.ord;

-- name: FindKey :one
SELECT k.run_id, k.generation FROM pawl.key k
 WHERE k.shard = pawl.shard_of(CASE WHEN @ordering::text <> '' THEN @ordering::text ELSE @key::text END, (SELECT m.shards FROM pawl.meta m))
   AND k.workflow = @workflow AND k.ordering = @ordering::text AND k.key = @key::text;

-- name: ReleaseKey :one
-- A person allows the key one more start once its run has ended, and says why.
WITH k AS (
  UPDATE pawl.key k SET released = true
   WHERE k.shard = pawl.shard_of(CASE WHEN @ordering::text <> '' THEN @ordering::text ELSE @key::text END, (SELECT m.shards FROM pawl.meta m))
     AND k.workflow = @workflow AND k.ordering = @ordering::text AND k.key = @key::text
  RETURNING k.shard, k.run_id
)
INSERT INTO pawl.audit (acted_at, actor, act, shard, run_id, workflow, key, reason)
SELECT pawl.clock(), @actor, 'release-key', k.shard, k.run_id, @workflow, @key, @reason FROM k
RETURNING run_id::uuid AS run_id;

-- name: Outcomes :many
-- What waiters ask: of these runs, those that have ended, with where their results are.
SELECT r.id, r.workflow, r.outcome, r.encoding, r.output, r.result_job, r.result_token
  FROM (SELECT pg_catalog.unnest(@ids::uuid[]) AS id) i,
       LATERAL (SELECT q.id, q.workflow, q.outcome, q.encoding, q.output, q.result_job, q.result_token FROM pawl.run q
                 WHERE q.shard = @shard::smallint AND q.id >= i.id AND q.id <= i.id AND q.outcome IS NOT NULL ORDER BY q.id LIMIT 1) r;

-- name: Existing :many
-- Which of these runs are there.
SELECT r.id FROM (SELECT pg_catalog.unnest(@ids::uuid[]) AS id) i,
       LATERAL (SELECT q.id FROM pawl.run q WHERE q.shard = @shard::smallint AND q.id >= i.id AND q.id <= i.id ORDER BY q.id LIMIT 1) r;

-- name: RunExists :one
SELECT r.workflow FROM pawl.run r WHERE r.shard = @shard::smallint AND r.id >= @id AND r.id <= @id ORDER BY r.id LIMIT 1;

-- name: Outputs :many
-- Recorded values, by key.
SELECT h.run_id, h.job, h.token, h.encoding, h.output
  FROM (SELECT pg_catalog.unnest(@runs::uuid[]) AS run_id, pg_catalog.unnest(@jobs::bigint[]) AS job, pg_catalog.unnest(@tokens::bigint[]) AS token) i,
       LATERAL (SELECT x.run_id, x.job, x.token, x.encoding, x.output FROM pawl.history x
                 WHERE x.shard = @shard::smallint AND x.run_id = i.run_id AND x.job = i.job AND x.token = i.token LIMIT 1) h;

-- name: OutputOfNode :many
-- The slow way to an output that no longer is referred to: by place, newest first.
SELECT h.job, h.token, h.encoding, h.output FROM pawl.history h
 WHERE h.shard = @shard::smallint AND h.run_id = @run_id AND h.node = @node AND h.event IN ('completed', 'settled') AND h.output IS NOT NULL
 ORDER BY h.token DESC LIMIT 1;

-- name: GetRun :one
SELECT r.*, d.graph, d.settings::text AS settings FROM pawl.run r JOIN pawl.definition d ON d.id = r.definition WHERE r.shard = @shard::smallint AND r.id = @id;

-- name: JobsOfRun :many
SELECT j.id, j.node, j.path, j.state, j.mode, j.attempt, j.token, j.expires_at, j.uncertain_at, j.code, j.questions, j.lapses, j.effect_key, j.refs,
       least(j.due_at, '9999-01-01 00:00:00+00')::timestamptz AS due_at, CASE WHEN c.job IS NOT NULL THEN c.done END AS done, CASE WHEN c.job IS NOT NULL THEN c.total END AS total, pawl.clock()::timestamptz AS now,
       (j.state = 'pending' AND j.due_at <= pawl.now() AND NOT EXISTS (
          SELECT FROM pawl.session s, LATERAL (SELECT pg_catalog.unnest(s.routes) AS route, pg_catalog.unnest(s.floors) AS floor) k
           WHERE s.closed_at IS NULL AND s.expires_at > pawl.now() AND k.route = j.route AND j.node >= k.floor))::boolean AS stranded
  FROM (SELECT x.id, x.node, x.path, x.state, x.mode, x.attempt, x.token, x.expires_at, x.uncertain_at, x.code, x.questions, x.lapses, x.effect_key, x.refs, x.due_at, x.route
          FROM pawl.job x WHERE x.shard = @shard::smallint AND x.run_id >= @run_id AND x.run_id <= @run_id ORDER BY x.run_id, x.id LIMIT 100000) j
  LEFT JOIN LATERAL (SELECT y.job, y.done, y.total FROM pawl.cursor y WHERE y.shard = @shard::smallint AND y.job = j.id LIMIT 1) c ON true
 ORDER BY j.id;

-- name: HistoryOfRun :many
SELECT h.* FROM pawl.history h WHERE h.shard = @shard::smallint AND h.run_id = @run_id AND (h.job, h.token) > (@after_job::bigint, @after_token::bigint)
 ORDER BY h.job, h.token LIMIT @most::int;

-- name: EvidenceOfRun :many
SELECT e.* FROM pawl.evidence e WHERE e.shard = @shard::smallint AND e.run_id = @run_id ORDER BY e.id;

-- name: LastFailure :many
-- Why a run is dead: its dead jobs with the row that made them so.
SELECT j.id, j.node, j.path, j.attempt, h.class, h.code, h.reason
  FROM pawl.job j LEFT JOIN LATERAL (SELECT x.class, x.code, x.reason FROM pawl.history x
        WHERE x.shard = j.shard AND x.run_id = j.run_id AND x.job = j.id AND x.token = j.token) h ON true
 WHERE j.shard = @shard::smallint AND j.run_id = @run_id AND j.state = 'dead' ORDER BY j.id;

-- name: LastMoved :one
-- When a run moved last: its newest transition, else its start. How long it has waited decides whether its trace goes on.
SELECT coalesce((SELECT h.ended_at FROM pawl.history h WHERE h.shard = @shard::smallint AND h.run_id = @id::uuid ORDER BY h.job DESC, h.token DESC LIMIT 1),
                r.created_at)::timestamptz AS moved_at
  FROM pawl.run r WHERE r.shard = @shard::smallint AND r.id >= @id::uuid AND r.id <= @id::uuid ORDER BY r.id LIMIT 1;

-- name: Retrace :execrows
-- A run goes on in another trace, unless somebody has said so before.
UPDATE pawl.run SET traceparent = @traceparent::text, tracestate = @tracestate::text
 WHERE shard = @shard::smallint AND id = @id::uuid AND traceparent = @was::text;
