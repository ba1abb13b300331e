-- name: SaveCursor :many
-- Moves a cursor: fenced, and only from the sequence number that the writer last knew, so that a write whose
-- answer was lost can be told from one that did not happen. Progress: the lease moves on, and the budgets of
-- lapses and failures start anew. No rows: ask ReadJob why. In a transaction of the user's, LockJob comes first.
WITH l AS MATERIALIZED (
  SELECT j.ctid AS tid, j.state, j.owner, j.token, j.expires_at, j.cursor_seq
    FROM pawl.job j WHERE j.shard = @shard::smallint AND j.id >= @id AND j.id <= @id ORDER BY j.id LIMIT 1 FOR NO KEY UPDATE
), f AS MATERIALIZED (
  SELECT @shard::smallint AS shard, l.tid, l.state, l.owner, l.token, l.expires_at, l.cursor_seq, pawl.clock() AS now FROM l
), u AS (
  UPDATE pawl.job j
     SET cursor_seq = j.cursor_seq + 1, lapses = 0, transients = 0, unknowns = 0, failed_at = NULL,
         expires_at = least(j.deadline_at, greatest(j.expires_at, pawl.after(f.now, @lease_ms::bigint)))
    FROM f
   WHERE j.shard = @shard::smallint AND j.ctid = f.tid AND f.shard = @shard::smallint AND f.state = 'running' AND f.owner = @owner::uuid AND f.token = @token::bigint
     AND f.expires_at > f.now AND f.cursor_seq = @seq::bigint
  RETURNING j.shard, j.id, j.cursor_seq, j.expires_at, j.deadline_at, f.now
), s AS (
  INSERT INTO pawl.cursor AS c (shard, job, seq, encoding, value, done, total, saved_at)
  SELECT u.shard, u.id, u.cursor_seq, @encoding::text, @value::bytea, @done::bigint, @total::bigint, u.now FROM u
  ON CONFLICT (shard, job) DO UPDATE SET seq = excluded.seq, encoding = excluded.encoding, value = excluded.value,
    done = excluded.done, total = excluded.total, saved_at = excluded.saved_at
  RETURNING c.job
)
SELECT u.cursor_seq, u.expires_at::timestamptz AS expires_at, u.deadline_at::timestamptz AS deadline_at, u.now::timestamptz AS now FROM u;

-- name: ReadCursor :many
SELECT c.seq, c.encoding, c.value, c.done, c.total FROM pawl.cursor c WHERE c.shard = @shard::smallint AND c.job = @job;

-- name: SaveProgress :exec
-- For show only: what a long step said of its progress, between two cursors. It renews nothing, but is fenced like
-- every write of an attempt. The job's row is written too, unchanged: so a transition that has not seen the cursor's
-- new row can't take the job away from over it.
WITH l AS MATERIALIZED (
  SELECT j.ctid AS tid, j.state, j.owner, j.token, j.expires_at
    FROM pawl.job j WHERE j.shard = @shard::smallint AND j.id >= @job AND j.id <= @job ORDER BY j.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
), f AS MATERIALIZED (
  SELECT @shard::smallint AS shard, l.tid, l.state, l.owner, l.token, l.expires_at, pawl.clock() AS now FROM l
), u AS (
  UPDATE pawl.job j SET expires_at = j.expires_at
    FROM f
   WHERE j.shard = @shard::smallint AND j.ctid = f.tid AND f.shard = @shard::smallint AND f.state = 'running' AND f.owner = @owner::uuid
     AND f.token = @token::bigint AND f.expires_at > f.now
  RETURNING j.shard, j.id, j.cursor_seq, f.now
)
INSERT INTO pawl.cursor AS c (shard, job, seq, encoding, value, done, total, saved_at)
SELECT u.shard, u.id, u.cursor_seq, @encoding::text, NULL, @done::bigint, @total::bigint, u.now FROM u
ON CONFLICT (shard, job) DO UPDATE SET done = excluded.done, total = excluded.total, saved_at = excluded.saved_at;
