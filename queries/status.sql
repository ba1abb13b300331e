-- What pawl status reads: in one snapshot, and of each kind so many rows at most.

-- name: Meta :one
SELECT pawl.clock()::timestamptz AS now, m.shards, coalesce(m.keep::text, '')::text AS keep FROM pawl.meta m;

-- name: DeadCauses :many
-- Why runs are dead, newest first: by place and code.
SELECT r.definition, j.node, coalesce(j.code, '')::text AS code, count(*) AS jobs,
       min(coalesce(r.ended_at, j.failed_at, r.created_at))::timestamptz AS first, max(coalesce(r.ended_at, j.failed_at, r.created_at))::timestamptz AS last,
       ((pg_catalog.array_agg(j.run_id ORDER BY r.ended_at DESC))[1])::uuid AS run_id
  FROM (SELECT pg_catalog.unnest(@shards::smallint[]) AS shard) s
 CROSS JOIN LATERAL (SELECT x.run_id, x.node, x.code, x.failed_at FROM pawl.job x WHERE x.shard = s.shard AND x.state = 'dead'
                      ORDER BY x.run_id DESC, x.id DESC LIMIT @most::int) j
 CROSS JOIN LATERAL (SELECT q.definition, q.ended_at, q.created_at FROM pawl.run q WHERE q.shard = s.shard AND q.id >= j.run_id AND q.id <= j.run_id ORDER BY q.id LIMIT 1) r
 GROUP BY 1, 2, 3 ORDER BY jobs DESC, 1, 2, 3;

-- name: FailingCauses :many
-- What fails and is tried again.
SELECT w.definition, j.node, coalesce(j.code, '')::text AS code, count(*) AS jobs, min(j.failed_at)::timestamptz AS first, max(j.attempt)::int AS attempts,
       (min(least(j.due_at, '9999-01-01 00:00:00+00')))::timestamptz AS next, ((pg_catalog.array_agg(j.run_id ORDER BY j.failed_at))[1])::uuid AS run_id
  FROM (SELECT pg_catalog.unnest(@shards::smallint[]) AS shard) s
 CROSS JOIN LATERAL (SELECT x.run_id, x.node, x.code, x.failed_at, x.attempt, x.due_at, x.route, x.uncertain_at FROM pawl.job x
                      WHERE x.shard = s.shard AND x.failed_at IS NOT NULL AND x.state <> 'dead' ORDER BY x.run_id, x.id LIMIT @most::int) j
  JOIN pawl.route w ON w.id = j.route
 WHERE j.uncertain_at IS NULL
 GROUP BY 1, 2, 3 ORDER BY jobs DESC, 1, 2, 3;

-- name: UnsettledEffects :many
-- Effects whose outcome is not known, apart those that a person must resolve.
SELECT w.definition, j.node, coalesce(j.code, '')::text AS code, (j.state = 'uncertain' AND j.due_at = 'infinity')::boolean AS person, count(*) AS jobs,
       min(j.uncertain_at)::timestamptz AS first, max(j.uncertain_at)::timestamptz AS last, max(j.questions)::int AS questions,
       (min(least(j.due_at, '9999-01-01 00:00:00+00')))::timestamptz AS next, ((pg_catalog.array_agg(j.run_id ORDER BY j.uncertain_at))[1])::uuid AS run_id
  FROM (SELECT pg_catalog.unnest(@shards::smallint[]) AS shard) s
 CROSS JOIN LATERAL (SELECT x.run_id, x.node, x.code, x.state, x.uncertain_at, x.questions, x.due_at, x.route FROM pawl.job x
                      WHERE x.shard = s.shard AND x.uncertain_at IS NOT NULL ORDER BY x.run_id, x.id LIMIT @most::int) j
  JOIN pawl.route w ON w.id = j.route
 GROUP BY 1, 2, 3, 4 ORDER BY jobs DESC, 1, 2, 3, 4;

-- name: LastReasons :many
-- What was said last of these runs' errors.
SELECT i.run_id::uuid AS run_id, h.reason::text AS reason
  FROM (SELECT pg_catalog.unnest(@shards::smallint[]) AS shard, pg_catalog.unnest(@runs::uuid[]) AS run_id) i
 CROSS JOIN LATERAL (SELECT x.reason FROM pawl.history x WHERE x.shard = i.shard AND x.run_id = i.run_id AND x.reason IS NOT NULL AND x.code IS NOT NULL
                      ORDER BY x.job DESC, x.token DESC LIMIT 1) h;

-- name: Unclaimable :many
-- Due work that no live worker takes, of the oldest due of each route. floor: the first step that live workers know, -1: none.
WITH f AS MATERIALIZED (
  SELECT k.route, min(k.floor) AS floor
    FROM pawl.session o, LATERAL (SELECT pg_catalog.unnest(o.routes) AS route, pg_catalog.unnest(o.floors) AS floor) k
   WHERE o.closed_at IS NULL AND o.expires_at > pawl.now() GROUP BY k.route
)
SELECT w.definition, w.queue, coalesce(f.floor, -1)::int AS floor, x.node, sum(x.jobs)::bigint AS jobs, min(x.since)::timestamptz AS since,
       ((pg_catalog.array_agg(x.run_id ORDER BY x.since))[1])::uuid AS run_id
  FROM pawl.route w LEFT JOIN f ON f.route = w.id
 CROSS JOIN (SELECT pg_catalog.unnest(@shards::smallint[]) AS shard) s
 CROSS JOIN LATERAL (
    SELECT y.node, count(*) AS jobs, min(y.due_at) AS since, (pg_catalog.array_agg(y.run_id ORDER BY y.due_at))[1] AS run_id
      FROM (SELECT j.node, j.due_at, j.run_id FROM pawl.job j WHERE j.shard = s.shard AND j.route = w.id AND j.state = 'pending' AND j.due_at <= pawl.now()
             ORDER BY j.due_at, j.id LIMIT @most::int) y
     WHERE f.floor IS NULL OR y.node < f.floor GROUP BY y.node) x
 WHERE f.floor IS NULL OR f.floor > 0
 GROUP BY 1, 2, 3, 4 ORDER BY since, 1, 2, 4;

-- name: BusyRoutes :many
-- The routes, by shard, on which something waits.
SELECT w.id AS route, s.shard::smallint AS shard
  FROM pawl.route w CROSS JOIN (SELECT pg_catalog.unnest(@shards::smallint[]) AS shard) s
 CROSS JOIN LATERAL (SELECT j.id FROM pawl.job j WHERE j.shard = s.shard AND j.route = w.id AND j.state = 'pending' ORDER BY j.due_at, j.id LIMIT 1) x
 ORDER BY 1, 2;

-- name: QueueDepths :many
-- How much waits in each queue: so many of each route at most, and whether there is more.
SELECT w.queue, sum(x.due)::bigint AS due, sum(x.later)::bigint AS later, bool_or(x.due + x.later >= @most::int)::boolean AS more,
       min(least(x.oldest, '9999-01-01 00:00:00+00'))::timestamptz AS oldest
  FROM (SELECT pg_catalog.unnest(@routes::int[]) AS route, pg_catalog.unnest(@shards::smallint[]) AS shard) i
  JOIN pawl.route w ON w.id = i.route
 CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE y.due_at <= pawl.now()) AS due, count(*) FILTER (WHERE y.due_at > pawl.now()) AS later, min(y.due_at) AS oldest
      FROM (SELECT j.due_at FROM pawl.job j WHERE j.shard = i.shard AND j.route = i.route AND j.state = 'pending' ORDER BY j.due_at, j.id LIMIT @most::int) y) x
 GROUP BY w.queue ORDER BY w.queue;

-- name: RunningJobs :many
-- What runs, by worker and queue, and what of it should have been taken back.
SELECT j.owner::uuid AS owner, w.queue, count(*) AS jobs, count(*) FILTER (WHERE j.expires_at <= pawl.now() OR o.id IS NULL) AS lapsed,
       min(j.granted_at)::timestamptz AS oldest, coalesce(min(j.expires_at) FILTER (WHERE j.expires_at <= pawl.now() OR o.id IS NULL), '9999-01-01 00:00:00+00')::timestamptz AS lapsed_at
  FROM (SELECT pg_catalog.unnest(@shards::smallint[]) AS shard) s
 CROSS JOIN LATERAL (SELECT x.owner, x.route, x.granted_at, x.expires_at FROM pawl.job x WHERE x.shard = s.shard AND x.state = 'running' ORDER BY x.id LIMIT @most::int) j
  JOIN pawl.route w ON w.id = j.route
  LEFT JOIN pawl.session o ON o.id = j.owner AND o.closed_at IS NULL AND o.expires_at > pawl.now()
 GROUP BY 1, 2 ORDER BY 1, 2;

-- name: Workers :many
-- Sessions that are open, alive or not, and those that were closed by others of late, since they had lapsed.
SELECT o.id, o.name, o.host, o.pid, o.build, o.pawl, o.started_at, o.expires_at, o.closed_at, (o.closed_at IS NULL AND o.expires_at > pawl.now())::boolean AS alive,
       ARRAY(SELECT DISTINCT w.queue FROM pawl.route w WHERE w.id = ANY (o.routes) ORDER BY 1)::text[] AS queues,
       ARRAY(SELECT DISTINCT w.definition FROM pawl.route w WHERE w.id = ANY (o.routes) ORDER BY 1)::bigint[] AS definitions
  FROM ((SELECT a.* FROM pawl.session a WHERE a.closed_at IS NULL ORDER BY a.id LIMIT @most::int)
        UNION ALL
        (SELECT b.* FROM pawl.session b WHERE b.closed_at IS NOT NULL AND b.closed_at > pawl.now() - interval '1 hour' AND b.closed_at > b.expires_at
          ORDER BY b.closed_at DESC LIMIT 20)) o
 ORDER BY (o.closed_at IS NOT NULL), o.started_at, o.id;

-- name: Snapshots :many
-- Who holds the oldest snapshot or transaction, by which dead rows can't be cleared away. Without the rights of
-- pg_read_all_stats others' sessions show nothing.
SELECT x.kind::text AS kind, x.who::text AS who, x.what::text AS what, x.pid::int AS pid, coalesce(x.since, '0001-01-01 00:00:00+00')::timestamptz AS since,
       coalesce(extract(epoch FROM clock_timestamp() - x.since), -1)::float8 AS seconds, x.old::bigint AS transactions
  FROM (SELECT 'session' AS kind, concat_ws(' ', a.usename, nullif(a.application_name, ''), host(a.client_addr)) AS who, coalesce(a.state, '') AS what, a.pid,
               a.xact_start AS since, greatest(age(a.backend_xmin), age(a.backend_xid)) AS old
          FROM pg_catalog.pg_stat_activity a
         WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
           AND a.backend_type = 'client backend'
        UNION ALL
        SELECT 'prepared transaction', concat_ws(' ', p.owner, p.gid), 'prepared', 0, p.prepared, age(p.transaction) FROM pg_catalog.pg_prepared_xacts p WHERE p.database = current_database()
        UNION ALL
        SELECT 'standby', concat_ws(' ', r.usename, nullif(r.application_name, ''), host(r.client_addr)), coalesce(r.state, ''), r.pid, NULL, age(r.backend_xmin)
          FROM pg_catalog.pg_stat_replication r WHERE r.backend_xmin IS NOT NULL
        UNION ALL
        SELECT 'replication slot', s.slot_name::text, CASE WHEN s.active THEN 'active' ELSE 'inactive' END, coalesce(s.active_pid, 0), NULL, age(s.xmin)
          FROM pg_catalog.pg_replication_slots s WHERE s.xmin IS NOT NULL) x
 ORDER BY x.old DESC, x.since LIMIT 1;

-- name: Health :one
-- ahead: for how many days after today the history has partitions; -1: not even today's. hidden: others' sessions can't be seen.
SELECT coalesce((SELECT t.n_dead_tup FROM pg_catalog.pg_stat_user_tables t WHERE t.relid = 'pawl.job'::regclass), 0)::bigint AS dead_rows,
       coalesce((SELECT t.n_live_tup FROM pg_catalog.pg_stat_user_tables t WHERE t.relid = 'pawl.job'::regclass), 0)::bigint AS live_rows,
       (SELECT greatest(t.last_autovacuum, t.last_vacuum) FROM pg_catalog.pg_stat_user_tables t WHERE t.relid = 'pawl.job'::regclass) AS vacuumed_at,
       pg_total_relation_size('pawl.job'::regclass)::bigint AS job_bytes,
       coalesce((SELECT min(i) - 1 FROM pg_catalog.generate_series(0, 400) AS i
                  WHERE to_regclass('pawl.history_' || to_char((pawl.now() AT TIME ZONE 'UTC')::date + i, 'YYYYMMDD')) IS NULL), 400)::int AS ahead,
       (NOT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'))::boolean AS hidden,
       current_setting('server_version')::text AS server, current_database()::text AS name;
