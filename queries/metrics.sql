-- What a scrape reads of the database: of each kind so many rows at most, by an index.

-- name: QueueGauges :many
-- What is due in each queue, for how long, and what of it no live worker takes.
WITH f AS MATERIALIZED (
  SELECT k.route, min(k.floor) AS floor
    FROM pawl.session o, LATERAL (SELECT pg_catalog.unnest(o.routes) AS route, pg_catalog.unnest(o.floors) AS floor) k
   WHERE o.closed_at IS NULL AND o.expires_at > pawl.now() GROUP BY k.route
)
SELECT w.queue, sum(x.due)::bigint AS due, coalesce(extract(epoch FROM pawl.now() - min(x.since)), 0)::float8 AS oldest,
       sum(x.stranded)::bigint AS stranded, coalesce(extract(epoch FROM pawl.now() - min(x.stranded_since)), 0)::float8 AS stranded_oldest
  FROM pawl.route w LEFT JOIN f ON f.route = w.id
 CROSS JOIN (SELECT pg_catalog.unnest(@shards::smallint[]) AS shard) s
 CROSS JOIN LATERAL (
    SELECT count(*) AS due, min(y.due_at) AS since, count(*) FILTER (WHERE y.left_over) AS stranded, min(y.due_at) FILTER (WHERE y.left_over) AS stranded_since
      FROM (SELECT j.due_at, (f.floor IS NULL OR j.node < f.floor) AS left_over FROM pawl.job j
             WHERE j.shard = s.shard AND j.route = w.id AND j.state = 'pending' AND j.due_at <= pawl.now()
             ORDER BY j.due_at, j.id LIMIT @most::int) y) x
 GROUP BY w.queue;

-- name: JobGauges :one
-- What is dead and what is uncertain: how much, since when, and for how long the question that is latest has not been asked.
SELECT d.n::bigint AS dead, d.oldest::float8 AS dead_oldest, u.n::bigint AS uncertain, u.oldest::float8 AS uncertain_oldest, q.late::float8 AS overdue
  FROM (SELECT count(*) AS n, coalesce(extract(epoch FROM pawl.now() - min(coalesce(r.ended_at, x.failed_at, r.created_at))), 0) AS oldest
          FROM (SELECT pg_catalog.unnest(@shards::smallint[]) AS shard) s
         CROSS JOIN LATERAL (SELECT j.run_id, j.failed_at FROM pawl.job j WHERE j.shard = s.shard AND j.state = 'dead' ORDER BY j.run_id, j.id LIMIT @most::int) x
         CROSS JOIN LATERAL (SELECT q.ended_at, q.created_at FROM pawl.run q WHERE q.shard = s.shard AND q.id >= x.run_id AND q.id <= x.run_id ORDER BY q.id LIMIT 1) r) d,
       (SELECT count(*) AS n, coalesce(extract(epoch FROM pawl.now() - min(x.uncertain_at)), 0) AS oldest
          FROM (SELECT pg_catalog.unnest(@shards::smallint[]) AS shard) s
         CROSS JOIN LATERAL (SELECT j.uncertain_at FROM pawl.job j WHERE j.shard = s.shard AND j.uncertain_at IS NOT NULL ORDER BY j.run_id, j.id LIMIT @most::int) x) u,
       (SELECT greatest(coalesce(extract(epoch FROM pawl.now() - min(x.due_at)), 0), 0) AS late
          FROM (SELECT pg_catalog.unnest(@shards::smallint[]) AS shard) s
         CROSS JOIN LATERAL (SELECT j.due_at FROM pawl.job j WHERE j.shard = s.shard AND j.state = 'uncertain' AND j.due_at <= pawl.now() ORDER BY j.due_at, j.id LIMIT 1) x) q;
