-- Following what is committed. Rows are found by time, through the small index on ended_at; a row may be committed later than
-- others that ended after it, so each round reads again from the beginning of the oldest transaction that was writing in the round before.

-- name: Writers :many
-- The transactions that write now, with pawl's clock: what they have inserted is not visible yet. The last row, without an xid, is
-- the clock, read before. hidden: the rights to see others' are missing.
SELECT ''::text AS xid, pawl.clock()::timestamptz AS since, (NOT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'))::boolean AS hidden
UNION ALL
SELECT a.backend_xid::text, (a.xact_start + (pawl.clock() - clock_timestamp()))::timestamptz, false
  FROM pg_catalog.pg_stat_activity a
 WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_xid IS NOT NULL AND a.xact_start IS NOT NULL;

-- name: OldestJobs :many
-- The oldest run of each shard that has a job: in no older partition does anything happen.
SELECT x.run_id FROM (SELECT pg_catalog.unnest(@shards::smallint[]) AS shard) s
 CROSS JOIN LATERAL (SELECT j.run_id FROM pawl.job j WHERE j.shard = s.shard ORDER BY j.run_id, j.id LIMIT 1) x;

-- name: TailAll :many
-- No condition on the shard: the primary key must not look like a way to these rows. xids: only what these transactions wrote.
SELECT h.shard, h.run_id, h.job, h.token, h.node, h.path, h.attempt, coalesce(h.mode, 'do')::text AS mode, coalesce(h.from_state, 'running')::text AS from_state, h.to_state, h.event, coalesce(h.writer, 'worker')::text AS writer, h.granted_at, h.ended_at, h.owner, o.name AS worker, h.actor,
       h.class, h.code, h.reason, r.workflow, r.key, r.definition, h.xmin::text AS xid
  FROM pawl.history h
  LEFT JOIN pawl.run r ON r.shard = h.shard AND r.id = h.run_id
  LEFT JOIN pawl.session o ON o.id = h.owner
 WHERE h.run_id >= @first::uuid AND h.run_id < @before::uuid AND h.ended_at >= @since::timestamptz AND h.ended_at < @until::timestamptz
   AND (h.ended_at, h.run_id, h.job, h.token) > (@after_at::timestamptz, @after_run::uuid, @after_job::bigint, @after_token::bigint)
   AND (pg_catalog.cardinality(@xids::text[]) = 0 OR h.xmin::text = ANY (@xids::text[]))
   AND (@workflow::text = '' OR r.workflow = @workflow::text)
 ORDER BY h.ended_at, h.run_id, h.job, h.token LIMIT @most::int;

-- name: TailRun :many
SELECT h.shard, h.run_id, h.job, h.token, h.node, h.path, h.attempt, coalesce(h.mode, 'do')::text AS mode, coalesce(h.from_state, 'running')::text AS from_state, h.to_state, h.event, coalesce(h.writer, 'worker')::text AS writer, h.granted_at, h.ended_at, h.owner, o.name AS worker, h.actor,
       h.class, h.code, h.reason, r.workflow, r.key, r.definition, h.xmin::text AS xid
  FROM pawl.history h
  LEFT JOIN pawl.run r ON r.shard = h.shard AND r.id = h.run_id
  LEFT JOIN pawl.session o ON o.id = h.owner
 WHERE h.shard = @shard::smallint AND h.run_id = @run_id::uuid AND h.ended_at >= @since::timestamptz
   AND (h.ended_at, h.run_id, h.job, h.token) > (@after_at::timestamptz, @after_run::uuid, @after_job::bigint, @after_token::bigint)
 ORDER BY h.ended_at, h.run_id, h.job, h.token LIMIT @most::int;
