-- name: Transition
-- $1 owner, $2 whether the successor is leased; arrays, in the order of the ids: $3 id, $4 run, $5 token,
-- $6 request, $7 output, $8 last step, $9 refs. Answers the ids that were written.
-- Rows are looked up and changed in the forms that keep their plans whatever the statistics: see Pawl's.
WITH k AS MATERIALIZED (
  SELECT 0::smallint AS shard, i.id, i.run_id, i.token, i.request, i.output, i.last, i.refs, x.tid, x.granted_at, x.node, x.attempt, t.now, m.tid AS run_tid
    FROM (SELECT unnest($3::bigint[]) AS id, unnest($4::uuid[]) AS run_id, unnest($5::bigint[]) AS token, unnest($6::bigint[]) AS request,
                 unnest($7::bytea[]) AS output, unnest($8::boolean[]) AS last, unnest($9::text[]) AS refs) i
    CROSS JOIN LATERAL (SELECT j.ctid AS tid, j.owner, j.token, j.expires_at, j.granted_at, j.node, j.attempt
                          FROM pawl.job j WHERE j.shard = 0::smallint AND j.id >= i.id AND j.id <= i.id
                         ORDER BY j.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) x
    CROSS JOIN LATERAL (SELECT clock_timestamp() AS now WHERE x.tid IS NOT NULL) t -- after locking
    LEFT JOIN LATERAL (SELECT q.ctid AS tid FROM pawl.run q WHERE i.last AND q.shard = 0::smallint AND q.id >= i.run_id AND q.id <= i.run_id
                        ORDER BY q.id LIMIT 1 FOR NO KEY UPDATE) m ON true
   WHERE x.owner = $1::uuid AND x.token = i.token AND x.expires_at > t.now
), u AS (
  UPDATE pawl.job j
     SET token = j.token + 1, node = j.node + 1, refs = k.refs,
         state = CASE WHEN $2::boolean THEN 'running' ELSE 'pending' END, owner = CASE WHEN $2 THEN j.owner END,
         attempt = CASE WHEN $2 THEN 1 ELSE 0 END, due_at = CASE WHEN $2 THEN j.due_at ELSE k.now END,
         granted_at = CASE WHEN $2 THEN k.now END, expires_at = CASE WHEN $2 THEN k.now + interval '1 minute' END,
         deadline_at = CASE WHEN $2 THEN k.now + interval '15 minutes' END
    FROM k WHERE j.shard = 0::smallint AND j.ctid = k.tid AND k.shard = 0::smallint AND NOT k.last
  RETURNING k.shard, k.run_tid, k.id, k.run_id, k.token, k.request, k.output, k.granted_at, k.node, k.attempt, k.now, j.state AS to_state
), d AS (
  DELETE FROM pawl.job j USING k WHERE j.shard = 0::smallint AND j.ctid = k.tid AND k.shard = 0::smallint AND k.last
  RETURNING k.shard, k.run_tid, k.id, k.run_id, k.token, k.request, k.output, k.granted_at, k.node, k.attempt, k.now, 'gone' AS to_state
), w AS MATERIALIZED (
  SELECT * FROM u UNION ALL SELECT * FROM d
), e AS (
  UPDATE pawl.run r SET outcome = 'succeeded', ended_at = d.now, result_job = d.id, result_token = d.token + 1
    FROM d WHERE r.shard = 0::smallint AND r.ctid = d.run_tid AND d.shard = 0::smallint
), h AS (
  INSERT INTO pawl.history (shard, run_id, job, token, granted_at, ended_at, node, attempt, owner, request, path, to_state, event, encoding, output)
  SELECT 0, w.run_id, w.id, w.token + 1, w.granted_at, w.now, w.node, w.attempt, $1::uuid, w.request, '', w.to_state, 'completed', 'json', w.output
    FROM w
)
SELECT w.id FROM w
