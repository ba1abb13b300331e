-- name: Keeps :one
-- Whether somebody has set a rule.
SELECT (m.keep IS NOT NULL)::boolean AS keeps FROM pawl.meta m;

-- name: RetireRuns :one
SELECT coalesce(x.deleted, 0)::int AS deleted, coalesce(x.last, '00000000-0000-0000-0000-000000000000')::uuid AS last FROM pawl.retire_runs(@shard::smallint, @behind::uuid, @most::int) AS x;

-- name: RetirePartition :one
SELECT coalesce(pawl.retire_partition(), '')::text AS part;
