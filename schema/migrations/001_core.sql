-- Schema pawl: everything is qualified, since a user's search_path rules inside StartTx.
-- Text with CHECK, no enums; no foreign keys and no triggers on hot tables; payloads are bytes.
-- Every key of a table that grows with the work starts with shard, so that no statement of the hot
-- path needs rows of two shards to agree.

CREATE SCHEMA IF NOT EXISTS pawl;

-- One row: what was fixed when the schema was made, and which releases may use it.
CREATE TABLE pawl.meta (
  one         boolean  PRIMARY KEY DEFAULT true CHECK (one),
  shards      smallint NOT NULL DEFAULT 1 CHECK (shards BETWEEN 1 AND 4096),
  oldest_code integer  NOT NULL DEFAULT 1, -- the oldest schema version whose code works on this schema
  keep        interval CHECK (keep >= interval '1 day') -- for how long ended runs are kept: pawl.set_retention; null: for ever
);
INSERT INTO pawl.meta DEFAULT VALUES;

-- The one place that reads the clock: tests may shift it. clock() moves within a transaction, and is
-- what decides about leases; now() stands still, and is what an index can be searched by.
CREATE FUNCTION pawl.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp()';
CREATE FUNCTION pawl.now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT pg_catalog.now()';

-- after adds milliseconds to a time; absurd delays clamp to a hundred years, negative ones to nothing.
CREATE FUNCTION pawl.after(t timestamptz, ms bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS
  $$SELECT t + least(greatest(ms, 0), 3155760000000) * interval '1 millisecond'$$;

-- The shard of a key: the first four bytes of its SHA-256, modulo the number of shards.
CREATE FUNCTION pawl.shard_of(k text, shards smallint) RETURNS smallint LANGUAGE sql IMMUTABLE AS
  $$SELECT ((('x' || encode(substr(sha256(convert_to(k, 'UTF8')), 1, 4), 'hex'))::bit(32)::bigint) % shards)::smallint$$;

-- A run's id: a UUIDv7 of the database's clock whose twelve rand_a bits carry the shard.
CREATE FUNCTION pawl.new_run_id(shard smallint, t timestamptz) RETURNS uuid LANGUAGE sql VOLATILE AS
  $$SELECT (lpad(to_hex((extract(epoch FROM t) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(shard::int), 3, '0')
         || substr(replace(gen_random_uuid()::text, '-', ''), 17))::uuid$$;

-- The lowest id that a run of this moment or later has.
CREATE FUNCTION pawl.first_run_id(t timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS
  $$SELECT (lpad(to_hex((extract(epoch FROM t) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid$$;

-- A workflow's graph of steps, once for each different graph. New runs get the one activated last.
CREATE TABLE pawl.definition (
  id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  workflow  text        NOT NULL CHECK (workflow <> ''),
  hash      bytea       NOT NULL,
  graph     bytea       NOT NULL,           -- JSON
  queue     text        NOT NULL,           -- of the first step
  settings  json        NOT NULL DEFAULT '{}', -- by step: its effective settings and which of them are no defaults, as the code said last
  active_at timestamptz NOT NULL,           -- when a process that knows it started last
  UNIQUE (workflow, hash)
);

-- An integer that names queue, definition and priority: what the ready index is cut by.
CREATE TABLE pawl.route (
  id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  definition bigint   NOT NULL,
  queue      text     NOT NULL,
  priority   smallint NOT NULL CHECK (priority BETWEEN 0 AND 3), -- 3 is claimed first
  UNIQUE (definition, queue, priority)
);

-- A worker process's own short lease. Closed once, never reopened.
CREATE TABLE pawl.session (
  id         uuid PRIMARY KEY,              -- the owner
  name       text        NOT NULL,          -- for people; says nothing about ownership
  routes     integer[]   NOT NULL,          -- what it may claim,
  floors     integer[]   NOT NULL,          -- and from which node on
  started_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  closed_at  timestamptz,
  host       text        NOT NULL DEFAULT '', -- for people as well: where the process runs,
  pid        integer     NOT NULL DEFAULT 0,
  build      text        NOT NULL DEFAULT '', -- what its program was built from,
  pawl       text        NOT NULL DEFAULT ''  -- and which Pawl is in it
) WITH (fillfactor = 50);
CREATE INDEX session_open ON pawl.session (id) WHERE closed_at IS NULL;
CREATE INDEX session_closed ON pawl.session (closed_at) WHERE closed_at IS NOT NULL;

-- A caller's key. Outlives runs: it counts how many starts the key has had.
CREATE TABLE pawl.key (
  shard      smallint NOT NULL,
  workflow   text     NOT NULL,
  ordering   text     NOT NULL,
  key        text     NOT NULL,
  generation integer  NOT NULL,
  run_id     uuid     NOT NULL,             -- of the newest start
  input_hash bytea    NOT NULL,
  released   boolean  NOT NULL DEFAULT false, -- a person allowed one more start
  ended_at   timestamptz,                   -- of that run, once retention has deleted it
  PRIMARY KEY (shard, workflow, ordering, key)
);

CREATE TABLE pawl.run (
  shard         smallint    NOT NULL,
  id            uuid        NOT NULL,
  workflow      text        NOT NULL,
  definition    bigint      NOT NULL,
  key           text,
  ordering      text        NOT NULL DEFAULT '',
  generation    integer     NOT NULL DEFAULT 1,
  priority      smallint    NOT NULL,
  tags          text[]      NOT NULL DEFAULT '{}',
  traceparent   text        NOT NULL DEFAULT '',
  tracestate    text        NOT NULL DEFAULT '',
  encoding      text        NOT NULL,
  input         bytea       NOT NULL,
  created_at    timestamptz NOT NULL,
  cancelling    boolean     NOT NULL DEFAULT false, -- asked for, and not ended yet
  cancelled_by  text,
  cancel_reason text,
  outcome       text CHECK (outcome IN ('succeeded', 'failed', 'undone', 'cancelled')),
  ended_at      timestamptz,
  result_job    bigint,                     -- the history row that holds the result,
  result_token  bigint,
  output        bytea,                      -- or the result itself, when it is no step's output
  PRIMARY KEY (shard, id),
  CHECK ((outcome IS NULL) = (ended_at IS NULL)),
  CHECK (outcome IS NULL OR NOT cancelling),
  CHECK ((outcome IS NOT DISTINCT FROM 'succeeded') = (result_token IS NOT NULL)),
  CHECK ((result_job IS NULL) = (result_token IS NULL)),
  CHECK (output IS NULL OR result_token IS NOT NULL)
) WITH (fillfactor = 55); -- a run's end is HOT: room for the runs of a page that end at about the same time
CREATE INDEX run_workflow ON pawl.run (workflow, id);
CREATE INDEX run_tags ON pawl.run USING gin (tags) WHERE tags <> '{}';
CREATE INDEX run_cancelling ON pawl.run (shard, id) WHERE cancelling;

-- The live positions of runs, nothing else: a job advances in place. No column that changes at a
-- hand-over, a heartbeat or a cursor write is in an index or in an index's predicate, so those are HOT.
-- (failed_at and uncertain_at change at a hand-over only where something has gone wrong before it.)
CREATE TABLE pawl.job (
  -- The order of the columns is that of how often they change: what a hand-over or a heartbeat leaves alone comes
  -- first, and is left out of the write-ahead log.
  shard        smallint NOT NULL,
  id           bigint   GENERATED ALWAYS AS IDENTITY,
  run_id       uuid     NOT NULL,
  due_at       timestamptz NOT NULL,        -- pending: when; uncertain: when to ask, infinity: a person must
  failed_at    timestamptz,                 -- first failure of this step
  uncertain_at timestamptz,                 -- since when the outcome of its effect is unknown
  owner        uuid,
  route        integer  NOT NULL,
  lapses       integer  NOT NULL DEFAULT 0, -- since the cursor moved last
  transients   integer  NOT NULL DEFAULT 0, -- failures of each class
  unknowns     integer  NOT NULL DEFAULT 0,
  questions    integer  NOT NULL DEFAULT 0, -- asked about the effect
  effect_gen   integer  NOT NULL DEFAULT 0, -- raised by a replay with corrected input
  begun        boolean  NOT NULL DEFAULT false, -- the body of a LookUp or Manual effect may have run
  state        text     NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'running', 'waiting', 'uncertain', 'dead')),
  mode         text     NOT NULL DEFAULT 'do' CHECK (mode IN ('do', 'ask', 'settled')),
  at_expiry    text     NOT NULL DEFAULT 'retry' CHECK (at_expiry IN ('retry', 'ask', 'person')),
  path         text     NOT NULL DEFAULT '', -- the place: beside the node the element and round numbers around it, outermost first, dotted
  code         text,                        -- of the last error
  effect_at    timestamptz,                 -- first grant of the effect
  effect_key   bytea,
  effect_hash  bytea,
  cursor_seq   bigint   NOT NULL DEFAULT 0, -- raised by every cursor write
  token        bigint   NOT NULL DEFAULT 0, -- raised by every grant and every transition
  granted_at   timestamptz,
  expires_at   timestamptz,
  deadline_at  timestamptz,                 -- no renewal goes beyond: granted_at + max runtime
  attempt      integer  NOT NULL DEFAULT 0,
  node         integer  NOT NULL DEFAULT 0, -- the place: the graph's node
  refs         text     NOT NULL DEFAULT '', -- where the values that are still needed are recorded: node:job:token …
  PRIMARY KEY (shard, id),
  CHECK ((state = 'running') = (owner IS NOT NULL)),
  CHECK ((state = 'running') = (expires_at IS NOT NULL)),
  CHECK ((state = 'running') = (granted_at IS NOT NULL)),
  CHECK ((state = 'running') = (deadline_at IS NOT NULL)),
  CHECK (expires_at <= deadline_at),
  CHECK (state <> 'uncertain' OR uncertain_at IS NOT NULL),
  CHECK (mode <> 'ask' OR uncertain_at IS NOT NULL),
  CHECK (NOT begun OR (state = 'running' AND mode = 'do')),
  CHECK (at_expiry = 'retry' OR state = 'running'),
  CHECK ((effect_key IS NULL) = (effect_at IS NULL) AND (effect_key IS NULL) = (effect_hash IS NULL)),
  CHECK (token >= 0 AND attempt >= 0 AND node >= 0)
) WITH (fillfactor = 25, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 5000);
CREATE INDEX job_ready ON pawl.job (shard, route, due_at, id) WHERE state = 'pending';
CREATE INDEX job_running ON pawl.job (shard, id) WHERE state = 'running';
CREATE INDEX job_uncertain ON pawl.job (shard, due_at, id) WHERE state = 'uncertain';
CREATE INDEX job_run ON pawl.job (shard, run_id, id);
-- What people look for: it holds a failed run's job, one whose effect is not settled, one that fails and is tried again.
CREATE INDEX job_dead ON pawl.job (shard, run_id, id) WHERE state = 'dead';
CREATE INDEX job_unsettled ON pawl.job (shard, run_id, id) WHERE uncertain_at IS NOT NULL;
CREATE INDEX job_failing ON pawl.job (shard, run_id, id) WHERE failed_at IS NOT NULL AND state <> 'dead';

-- The typed position inside a long step, and the progress it reports. Gone when the step is done.
CREATE TABLE pawl.cursor (
  shard    smallint    NOT NULL,
  job      bigint      NOT NULL,
  seq      bigint      NOT NULL,            -- equals the job's cursor_seq
  encoding text        NOT NULL,
  value    bytea,                           -- null: progress only
  done     bigint      NOT NULL DEFAULT 0,
  total    bigint      NOT NULL DEFAULT 0,
  saved_at timestamptz NOT NULL,
  PRIMARY KEY (shard, job)
) WITH (fillfactor = 50);

-- One row a transition, append-only; it carries the grant that it closed. Partitioned by the run's day.
CREATE TABLE pawl.history (
  job        bigint      NOT NULL,
  token      bigint      NOT NULL,          -- the job's token after the transition
  granted_at timestamptz,
  ended_at   timestamptz NOT NULL,
  request    bigint      NOT NULL,          -- random: tells a transition that was written from one that was not
  node       integer     NOT NULL,
  attempt    integer     NOT NULL,
  run_id     uuid        NOT NULL,
  owner      uuid,                          -- whose lease it closed
  shard      smallint    NOT NULL,
  path       text        NOT NULL,
  mode       text,                          -- null, here and in the next and in writer: what nearly every row would say; do,
  from_state text,                          -- running,
  to_state   text        NOT NULL,          -- gone: the job has ended with its run
  event      text        NOT NULL CHECK (event IN ('completed', 'retried', 'snoozed', 'handed_back', 'lapsed', 'uncertain',
                                                   'asking', 'unknown', 'settled', 'repeat', 'dead', 'cancelled', 'resolved', 'replayed')),
  writer     text        CHECK (writer IN ('worker', 'recovery', 'reconciler', 'person')), -- worker
  encoding   text,
  actor      text,
  class      text,
  code       text,
  reason     text,
  evidence   text,
  output     bytea,                         -- a step's output; of a replay: the corrected input
  PRIMARY KEY (shard, run_id, job, token)
) PARTITION BY RANGE (run_id);
-- By time: what a person or a program that follows asks for. It costs an insert next to nothing, and is no B-tree for that reason.
CREATE INDEX history_ended ON pawl.history USING brin (ended_at) WITH (pages_per_range = 32, autosummarize = on);

-- What came after its lease was lost. It changes no state; reconciler and person are shown it.
CREATE TABLE pawl.evidence (
  id       bigint GENERATED ALWAYS AS IDENTITY,
  shard    smallint    NOT NULL,
  run_id   uuid        NOT NULL,
  job      bigint      NOT NULL,
  token    bigint      NOT NULL,            -- of the lost lease
  attempt  integer     NOT NULL,
  node     integer     NOT NULL,
  path     text        NOT NULL,
  owner    uuid        NOT NULL,
  came_at  timestamptz NOT NULL,
  class    text,                            -- null: an output
  code     text,
  reason   text,
  encoding text,
  output   bytea,
  PRIMARY KEY (shard, run_id, id)
);

-- Acts of people on whole runs and keys. Append-only. (Acts on a job are its history.)
CREATE TABLE pawl.audit (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  acted_at timestamptz NOT NULL,
  actor    text        NOT NULL,
  act      text        NOT NULL,
  shard    smallint,
  run_id   uuid,
  workflow text,
  key      text,
  reason   text        NOT NULL
);
CREATE INDEX audit_run ON pawl.audit (run_id) WHERE run_id IS NOT NULL;

-- Partitions of history: a day each, from yesterday on (a clock may be set back) to so many days ahead.
-- LIKE and ATTACH, since CREATE … PARTITION OF would lock the parent. Made with the rights of the
-- schema's owner, so that a worker's role needs none to make tables. Returns how many were made.
CREATE FUNCTION pawl.make_partitions(days integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '3s' AS $$
DECLARE
  today date := (pawl.clock() AT TIME ZONE 'UTC')::date;
  d     date;
  part  text;
  made  integer := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('pawl.make_partitions', 0));
  FOR i IN -1 .. least(days, 400) LOOP
    d := today + i;
    part := 'history_' || to_char(d, 'YYYYMMDD');
    CONTINUE WHEN to_regclass('pawl.' || part) IS NOT NULL;
    EXECUTE format('CREATE TABLE pawl.%I (LIKE pawl.history INCLUDING ALL)', part);
    EXECUTE format('ALTER TABLE pawl.history ATTACH PARTITION pawl.%I FOR VALUES FROM (%L) TO (%L)', part,
                   pawl.first_run_id(d::timestamp AT TIME ZONE 'UTC'), pawl.first_run_id((d + 1)::timestamp AT TIME ZONE 'UTC'));
    made := made + 1;
  END LOOP;
  RETURN made;
END $$;

-- Retention: nothing is deleted unless somebody has said for how long ended runs are kept. Runs that live, are dead or
-- uncertain stay whatever their age. First the runs go, then their history: a partition whose runs are all gone is
-- dropped, one in which some stay is written anew with what is theirs. Keys, with their number of starts, stay.
-- The two that delete act by that rule alone and with the rights of the schema's owner, so that a worker's role needs none.
CREATE FUNCTION pawl.set_retention(keep interval, actor text, reason text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF set_retention.keep < interval '1 day' THEN
    RAISE EXCEPTION 'pawl: ended runs are kept for a day at least, not %', set_retention.keep USING ERRCODE = 'PW004';
  END IF;
  IF coalesce(set_retention.actor, '') = '' OR coalesce(set_retention.reason, '') = '' THEN
    RAISE EXCEPTION 'pawl: who sets the retention says who he is, and why' USING ERRCODE = 'PW004';
  END IF;
  UPDATE pawl.meta SET keep = set_retention.keep;
  INSERT INTO pawl.audit (acted_at, actor, act, reason)
  VALUES (pawl.clock(), set_retention.actor, 'retention', coalesce(set_retention.keep::text, 'for ever') || ': ' || set_retention.reason);
END $$;

-- Deletes what is too old of one page of a shard's runs: those behind an id, so many at most. Returns how many it
-- deleted, and the last it looked at (null: there is nothing behind it that is old enough to look at).
CREATE FUNCTION pawl.retire_runs(a_shard smallint, a_behind uuid, a_most integer) RETURNS TABLE (deleted integer, last uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '3s' AS $$
DECLARE
  cutoff timestamptz := pawl.clock() - (SELECT m.keep FROM pawl.meta m);
  page   uuid[];
  ended  uuid[];
BEGIN
  page := ARRAY(SELECT r.id FROM pawl.run r WHERE r.shard = a_shard AND r.id > a_behind AND r.id < pawl.first_run_id(cutoff) ORDER BY r.id LIMIT a_most);
  ended := ARRAY(SELECT x.id FROM unnest(page) WITH ORDINALITY AS i(id, ord),
                        LATERAL (SELECT r.id FROM pawl.run r WHERE r.shard = a_shard AND r.id >= i.id AND r.id <= i.id
                                    AND r.outcome IN ('succeeded', 'cancelled', 'undone') AND r.ended_at < cutoff
                                  ORDER BY r.id LIMIT 1 FOR UPDATE SKIP LOCKED) x);
  UPDATE pawl.key k SET ended_at = r.ended_at FROM pawl.run r
   WHERE r.shard = a_shard AND r.id = ANY (ended) AND r.key IS NOT NULL
     AND k.shard = a_shard AND k.workflow = r.workflow AND k.ordering = r.ordering AND k.key = r.key AND k.run_id = r.id;
  DELETE FROM pawl.evidence e WHERE e.shard = a_shard AND e.run_id = ANY (ended);
  DELETE FROM pawl.run r WHERE r.shard = a_shard AND r.id = ANY (ended);
  RETURN QUERY SELECT cardinality(ended), page[cardinality(page)];
END $$;

-- Drops, or writes anew, the oldest partition of the history that has rows of runs that are gone. Returns its name, null if
-- there is none. It is written anew only if few rows stay, since it is locked so long. What it locks it waits for no longer
-- than 200 ms, since everybody queues behind it: 55P03, try again later. (TRUNCATE looks empty to a transaction that took
-- its snapshot before and has not touched the history yet.)
CREATE FUNCTION pawl.retire_partition() RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
  cutoff timestamptz := pawl.clock() - (SELECT m.keep FROM pawl.meta m);
  shards integer := (SELECT m.shards FROM pawl.meta m);
  most   integer := 100000; -- rows
  part   text;
  day    date;
  lo     uuid;
  hi     uuid;
  found  boolean;
  stay   integer;
BEGIN
  FOR part IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
               WHERE i.inhparent = 'pawl.history'::regclass AND c.relname ~ '^history_[0-9]{8}$' ORDER BY c.relname LOOP
    day := to_date(right(part, 8), 'YYYYMMDD');
    EXIT WHEN coalesce((day + 1)::timestamp AT TIME ZONE 'UTC' > cutoff, true);
    lo := pawl.first_run_id(day::timestamp AT TIME ZONE 'UTC');
    hi := pawl.first_run_id((day + 1)::timestamp AT TIME ZONE 'UTC');
    found := false;
    FOR s IN 0 .. shards - 1 LOOP
      found := found OR EXISTS (SELECT FROM pawl.run r WHERE r.shard = s AND r.id >= lo AND r.id < hi);
      EXIT WHEN found;
    END LOOP;
    IF NOT found THEN
      EXECUTE format('DROP TABLE pawl.%I', part);
      RETURN part;
    END IF;
    EXECUTE format('SELECT count(*) FROM (SELECT FROM pawl.run r JOIN pawl.%I h ON h.shard = r.shard AND h.run_id = r.id
                                           WHERE r.shard = ANY (ARRAY(SELECT generate_series(0, $1 - 1)::smallint)) AND r.id >= $2 AND r.id < $3 LIMIT $4 + 1) x', part)
       INTO stay USING shards, lo, hi, most;
    CONTINUE WHEN stay > most;
    EXECUTE format('SELECT EXISTS (SELECT FROM pawl.%I h WHERE NOT EXISTS (SELECT FROM pawl.run r WHERE r.shard = h.shard AND r.id = h.run_id))', part) INTO found;
    CONTINUE WHEN NOT found;
    EXECUTE format('LOCK TABLE pawl.%I IN ACCESS EXCLUSIVE MODE', part);
    EXECUTE format('CREATE TEMPORARY TABLE pawl_kept ON COMMIT DROP AS
                    SELECT h.* FROM pawl.run r JOIN pawl.%I h ON h.shard = r.shard AND h.run_id = r.id
                     WHERE r.shard = ANY (ARRAY(SELECT generate_series(0, $1 - 1)::smallint)) AND r.id >= $2 AND r.id < $3', part) USING shards, lo, hi;
    EXECUTE format('TRUNCATE pawl.%I', part);
    EXECUTE format('INSERT INTO pawl.%I SELECT k.* FROM pawl_kept k', part);
    RETURN part;
  END LOOP;
  DELETE FROM pawl.session s WHERE s.closed_at < cutoff AND NOT EXISTS (SELECT FROM pawl.job j WHERE j.state = 'running' AND j.owner = s.id);
  RETURN NULL;
END $$;

-- Starts runs of one workflow, all or none, in the caller's transaction: a key, a run and a job each.
-- A key that is taken gives back the run that has it (existed), unless that run has ended and either a
-- person released the key or it ended longer than reuse ago: then the key's generation rises.
-- same: the run that exists was started with the same input. An empty key is no key; a delay above zero
-- counts from now, whatever due says; a reuse below zero is never. One trace context for all, or one each.
-- The caller's search_path may hide everything: the function has its own.
CREATE FUNCTION pawl.start_runs(
  a_workflow text, a_inputs bytea[], a_encoding text, a_keys text[], a_ordering text, a_tags text[],
  a_priority smallint, a_due timestamptz, a_delay_ms bigint, a_traceparents text[], a_tracestates text[], a_reuse_ms bigint)
RETURNS TABLE (ord integer, run_id uuid, existed boolean, same boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  t      timestamptz := pawl.clock();
  due    timestamptz := CASE WHEN a_delay_ms > 0 THEN pawl.after(t, a_delay_ms) ELSE greatest(coalesce(a_due, t), t) END;
  reuse  interval := CASE WHEN a_reuse_ms >= 0 THEN least(a_reuse_ms, 3155760000000) * interval '1 millisecond' END;
  def    record;
  n      smallint;
  way    integer;
  shards smallint[];
  ids    uuid[];
  was    boolean[];
  sames  boolean[];
  gens   integer[];
  k      record;
  r      record;
BEGIN
  SELECT d.id, d.queue INTO def FROM pawl.definition d WHERE d.workflow = a_workflow AND d.active_at > '-infinity' ORDER BY d.active_at DESC, d.id DESC LIMIT 1;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'pawl: workflow % is not known to this database: start a process that has its definition once', quote_literal(a_workflow)
      USING ERRCODE = 'PW001';
  END IF;
  SELECT x.id INTO STRICT way FROM pawl.route x WHERE x.definition = def.id AND x.queue = def.queue AND x.priority = a_priority;
  SELECT m.shards INTO STRICT n FROM pawl.meta m;
  a_keys := ARRAY(SELECT nullif(u.key, '') FROM unnest(a_keys) WITH ORDINALITY AS u(key, ord) ORDER BY u.ord);

  SELECT array_agg(s.shard ORDER BY s.ord), array_agg(pawl.new_run_id(s.shard, t) ORDER BY s.ord)
    INTO shards, ids
    FROM (SELECT u.ord, CASE WHEN a_ordering <> '' THEN pawl.shard_of(a_ordering, n)
                             WHEN u.key IS NOT NULL THEN pawl.shard_of(u.key, n)
                             ELSE (floor(random() * n))::smallint END AS shard
            FROM unnest(a_keys) WITH ORDINALITY AS u(key, ord)) s;
  was := array_fill(false, ARRAY[cardinality(a_inputs)]);
  sames := was;
  gens := array_fill(1, ARRAY[cardinality(a_inputs)]);

  IF EXISTS (SELECT FROM unnest(a_keys) u WHERE u IS NOT NULL) THEN
    -- In order of the keys: two that start the same keys must not deadlock. Of the same key twice the first wins.
    INSERT INTO pawl.key (shard, workflow, ordering, key, generation, run_id, input_hash)
    SELECT u.shard, a_workflow, a_ordering, u.key, 1, u.id, sha256(u.input)
      FROM unnest(shards, a_keys, ids, a_inputs) WITH ORDINALITY AS u(shard, key, id, input, ord) WHERE u.key IS NOT NULL
     ORDER BY u.shard, u.key, u.ord
    ON CONFLICT DO NOTHING;
    FOR k IN SELECT u.ord, u.shard, u.key, u.id, sha256(u.input) AS hash, e.run_id AS old, e.input_hash, e.released, e.generation
               FROM unnest(shards, a_keys, ids, a_inputs) WITH ORDINALITY AS u(shard, key, id, input, ord),
                    LATERAL (SELECT * FROM pawl.key e WHERE e.shard = u.shard AND e.workflow = a_workflow
                                AND e.ordering = a_ordering AND e.key = u.key LIMIT 1) e
              WHERE u.key IS NOT NULL AND e.run_id <> u.id ORDER BY u.shard, u.key, u.ord LOOP
      IF k.released OR reuse IS NOT NULL THEN -- the run's row first: lock order
        SELECT x.outcome, x.ended_at INTO r FROM pawl.run x WHERE x.shard = k.shard AND x.id = k.old FOR NO KEY UPDATE;
        IF NOT FOUND THEN -- it has ended, and been deleted since
          SELECT 'deleted' AS outcome, e.ended_at INTO r FROM pawl.key e
           WHERE e.shard = k.shard AND e.workflow = a_workflow AND e.ordering = a_ordering AND e.key = k.key AND e.run_id = k.old;
        END IF;
        IF r.outcome IS NOT NULL AND (k.released OR r.ended_at + reuse <= t) THEN
          UPDATE pawl.key e SET generation = e.generation + 1, run_id = k.id, input_hash = k.hash, released = false, ended_at = NULL
           WHERE e.shard = k.shard AND e.workflow = a_workflow AND e.ordering = a_ordering AND e.key = k.key AND e.run_id = k.old;
          IF FOUND THEN
            gens[k.ord] := k.generation + 1;
            CONTINUE;
          END IF;
        END IF;
      END IF;
      SELECT e.run_id, e.input_hash INTO STRICT r FROM pawl.key e
       WHERE e.shard = k.shard AND e.workflow = a_workflow AND e.ordering = a_ordering AND e.key = k.key;
      ids[k.ord] := r.run_id;
      was[k.ord] := true;
      sames[k.ord] := r.input_hash = k.hash;
    END LOOP;
  END IF;

  INSERT INTO pawl.run (shard, id, workflow, definition, key, ordering, generation, priority, tags, traceparent, tracestate, encoding, input, created_at)
  SELECT u.shard, u.id, a_workflow, def.id, u.key, a_ordering, u.gen, a_priority,
         -- A variable's array is stored with a longer header than an UPDATE gives it, so that a run's end would not be HOT.
         ARRAY(SELECT x.tag FROM unnest(a_tags) WITH ORDINALITY AS x(tag, ord) ORDER BY x.ord),
         coalesce(a_traceparents[least(u.ord, cardinality(a_traceparents))], ''),
         coalesce(a_tracestates[least(u.ord, cardinality(a_tracestates))], ''), a_encoding, u.input, t
    FROM unnest(shards, ids, a_keys, gens, a_inputs, was) WITH ORDINALITY AS u(shard, id, key, gen, input, was, ord) WHERE NOT u.was;
  INSERT INTO pawl.job (shard, run_id, route, due_at)
  SELECT u.shard, u.id, way, due FROM unnest(shards, ids, was) AS u(shard, id, was) WHERE NOT u.was;

  RETURN QUERY SELECT u.ord::integer, u.id, u.was, u.same FROM unnest(ids, was, sames) WITH ORDINALITY AS u(id, was, same, ord) ORDER BY u.ord;
END $$;

-- Starting from plain SQL, in the caller's transaction: database/sql, psql, any language.
-- The run is there when the transaction commits, and workers are woken then.
CREATE FUNCTION pawl.start(workflow text, input json DEFAULT 'null', key text DEFAULT NULL, priority integer DEFAULT 1,
                           due_at timestamptz DEFAULT NULL, tags text[] DEFAULT '{}',
                           traceparent text DEFAULT '', tracestate text DEFAULT '')
RETURNS uuid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  bytes bytea := convert_to(coalesce(input, 'null')::text, 'UTF8');
  s     record;
BEGIN
  IF octet_length(bytes) > 1048576 THEN
    RAISE EXCEPTION 'pawl: the input of workflow % has % bytes, more than 1048576: store it elsewhere and pass a reference',
      quote_literal(workflow), octet_length(bytes) USING ERRCODE = 'PW003';
  END IF;
  IF start.priority IS NULL OR start.priority NOT BETWEEN 0 AND 3 THEN
    RAISE EXCEPTION 'pawl: priority % is not one of 0 (low), 1 (normal), 2 (high), 3 (urgent)', start.priority USING ERRCODE = 'PW004';
  END IF;
  IF start.key = '' OR octet_length(start.key) > 512 THEN
    RAISE EXCEPTION 'pawl: a key has 1 to 512 bytes, this one has %', octet_length(start.key) USING ERRCODE = 'PW004';
  END IF;
  IF cardinality(start.tags) > 32 OR EXISTS (SELECT FROM unnest(start.tags) AS x(tag) WHERE x.tag IS NULL OR x.tag = '' OR octet_length(x.tag) > 200) THEN
    RAISE EXCEPTION 'pawl: at most 32 tags of 1 to 200 bytes each' USING ERRCODE = 'PW004';
  END IF;
  SELECT * INTO STRICT s FROM pawl.start_runs(start.workflow, ARRAY[bytes], 'json', ARRAY[start.key], '', coalesce(start.tags, '{}'),
                                              start.priority::smallint, start.due_at, 0, ARRAY[coalesce(left(start.traceparent, 200), '')],
                                              ARRAY[coalesce(left(start.tracestate, 2000), '')], -1);
  IF s.existed AND NOT s.same THEN
    RAISE EXCEPTION 'pawl: key % of workflow % has started run % with another input', quote_literal(start.key), quote_literal(workflow), s.run_id
      USING ERRCODE = 'PW002';
  END IF;
  PERFORM pg_notify('pawl', 'w');
  RETURN s.run_id;
END $$;

-- For people with psql: what is stored, by names and decoded. Nothing can be written through these. docs/sql.md tells of them.

-- A payload as JSON; what is no JSON, or no UTF-8, is told as {"not_json": …}, and fails nobody's query.
CREATE FUNCTION pawl.decoded(payload bytea) RETURNS json LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  RETURN pg_catalog.convert_from(payload, 'UTF8')::pg_catalog.json;
EXCEPTION WHEN others THEN
  RETURN pg_catalog.json_build_object('not_json', pg_catalog.encode(payload, 'escape'));
END $$;

-- The steps of every graph that is stored, with their settings as the code said last.
CREATE VIEW pawl.steps AS
SELECT d.workflow, d.id AS definition, (s.ord - 1)::integer AS node, s.step ->> 'name' AS step, c.settings ->> 'queue' AS queue,
       coalesce(c.settings ->> 'effect', '') AS effect, c.settings ->> 'owner' AS owner, c.settings,
       d.active_at > '-infinity' AND d.active_at = (SELECT max(x.active_at) FROM pawl.definition x WHERE x.workflow = d.workflow) AS newest
  FROM pawl.definition d
 CROSS JOIN LATERAL (SELECT pawl.decoded(d.graph) -> 'steps' AS list) g
 CROSS JOIN LATERAL json_array_elements(CASE WHEN json_typeof(g.list) = 'array' THEN g.list END) WITH ORDINALITY AS s(step, ord)
 CROSS JOIN LATERAL (SELECT d.settings -> (s.step ->> 'name') AS settings) c;

-- Live positions of runs.
CREATE VIEW pawl.jobs AS
SELECT j.run_id, r.workflow, r.key,
       coalesce((SELECT p.step FROM pawl.steps p WHERE p.definition = r.definition AND p.node = j.node), 'result') AS step, j.path,
       CASE WHEN j.state IN ('pending', 'running') AND j.mode = 'ask' THEN 'uncertain' ELSE j.state END AS state,
       CASE WHEN j.state = 'running' AND j.expires_at <= pawl.now() THEN 'its lease has expired: a worker takes it back'
            WHEN j.state = 'running' AND j.mode = 'ask' THEN 'is being asked about'
            WHEN j.state = 'running' THEN 'runs'
            WHEN j.state = 'pending' AND j.due_at > pawl.now() THEN 'is due later'
            WHEN j.state = 'pending' AND j.mode = 'ask' THEN 'waits for a worker that asks about it'
            WHEN j.state = 'pending' THEN 'waits for a worker'
            WHEN j.state = 'uncertain' AND j.due_at = 'infinity' THEN 'a person must resolve it'
            WHEN j.state = 'uncertain' THEN 'is asked about later'
            WHEN j.state = 'dead' THEN 'a person must replay or cancel it' ELSE j.state END AS next,
       nullif(j.due_at, 'infinity') AS due_at, w.queue, r.priority, j.attempt, j.transients + j.unknowns AS failures, j.lapses, j.questions, j.code,
       j.failed_at, j.uncertain_at, j.granted_at, j.expires_at, o.name AS worker, encode(j.effect_key, 'hex') AS effect_key,
       c.done, c.total, j.shard, j.id AS job, j.token
  FROM pawl.job j
  JOIN pawl.run r ON r.shard = j.shard AND r.id = j.run_id
  LEFT JOIN pawl.route w ON w.id = j.route
  LEFT JOIN pawl.session o ON o.id = j.owner
  LEFT JOIN pawl.cursor c ON c.shard = j.shard AND c.job = j.id;

-- Runs, with the state that engine.List and pawl list show.
CREATE VIEW pawl.runs AS
SELECT r.id, r.workflow, r.key, coalesce(r.outcome, CASE WHEN r.cancelling THEN 'cancelling' ELSE s.state END) AS state,
       CASE WHEN s.node IS NOT NULL THEN coalesce((SELECT p.step FROM pawl.steps p WHERE p.definition = r.definition AND p.node = s.node), 'result') END AS step,
       s.code, (SELECT p.owner FROM pawl.steps p WHERE p.definition = r.definition AND p.node = s.node) AS owner, nullif(s.due_at, 'infinity') AS due_at,
       r.priority, r.tags, r.created_at, r.ended_at, r.cancelled_by, r.cancel_reason, pawl.decoded(r.input) AS input,
       pawl.decoded(coalesce(r.output, (SELECT h.output FROM pawl.history h
                                         WHERE h.shard = r.shard AND h.run_id = r.id AND h.job = r.result_job AND h.token = r.result_token))) AS result,
       nullif(r.traceparent, '') AS traceparent, r.definition, r.generation, r.shard
  FROM pawl.run r
 CROSS JOIN LATERAL (
    SELECT CASE WHEN bool_or(j.state = 'dead') THEN 'dead'
                WHEN bool_or(j.state = 'uncertain' OR j.mode = 'ask') THEN 'uncertain'
                WHEN bool_or(j.state = 'running') THEN 'running'
                WHEN bool_or(j.state = 'waiting') THEN 'waiting'
                WHEN bool_and(j.due_at > pawl.now()) THEN 'scheduled'
                ELSE 'running' END AS state,
           min(j.node) AS node, max(j.code) AS code, min(j.due_at) FILTER (WHERE j.state IN ('pending', 'uncertain')) AS due_at
      FROM pawl.job j WHERE j.shard = r.shard AND j.run_id = r.id) s;

-- What has happened: one row a transition. Ask by run_id, or by ended_at: both have an index.
CREATE VIEW pawl.transitions AS
SELECT h.ended_at, h.run_id, r.workflow, r.key,
       coalesce((SELECT p.step FROM pawl.steps p WHERE p.definition = r.definition AND p.node = h.node), 'result') AS step, h.path, h.event, coalesce(h.from_state, 'running') AS from_state, h.to_state,
       h.attempt, h.granted_at, h.ended_at - h.granted_at AS took, h.class, h.code, h.reason, coalesce(h.writer, 'worker') AS writer, o.name AS worker, h.actor, h.evidence,
       pawl.decoded(h.output) AS output, h.shard, h.job, h.token
  FROM pawl.history h
  LEFT JOIN pawl.run r ON r.shard = h.shard AND r.id = h.run_id
  LEFT JOIN pawl.session o ON o.id = h.owner;

-- Effects on the outside that are not settled, and those under way.
CREATE VIEW pawl.effects AS
SELECT j.run_id, j.workflow, j.key, j.step, CASE WHEN j.uncertain_at IS NOT NULL THEN 'unknown' WHEN j.state = 'running' THEN 'under way' ELSE j.state END AS outcome,
       j.effect_key, x.effect_at AS first_granted_at, j.uncertain_at AS unknown_since, j.questions, j.next, j.due_at, j.code,
       (SELECT count(*) FROM pawl.evidence e WHERE e.shard = j.shard AND e.run_id = j.run_id AND e.job = j.job) AS late_results, j.shard, j.job
  FROM pawl.jobs j JOIN pawl.job x ON x.shard = j.shard AND x.id = j.job
 WHERE x.effect_key IS NOT NULL OR x.uncertain_at IS NOT NULL;

-- Results that came after their lease was lost: they changed nothing.
CREATE VIEW pawl.late_results AS
SELECT e.came_at, e.run_id, r.workflow, r.key,
       coalesce((SELECT p.step FROM pawl.steps p WHERE p.definition = r.definition AND p.node = e.node), 'result') AS step, e.path, e.attempt,
       o.name AS worker, e.class, e.code, e.reason, pawl.decoded(e.output) AS output, e.shard, e.job, e.token
  FROM pawl.evidence e
  LEFT JOIN pawl.run r ON r.shard = e.shard AND r.id = e.run_id
  LEFT JOIN pawl.session o ON o.id = e.owner;

-- Processes that work, and those that have stopped without saying so and whose session nobody has closed yet.
CREATE VIEW pawl.workers AS
SELECT s.name, s.host, s.pid, s.build, s.pawl, s.started_at, s.expires_at, s.expires_at > pawl.now() AS alive,
       (SELECT count(*) FROM pawl.job j WHERE j.state = 'running' AND j.owner = s.id) AS running,
       ARRAY(SELECT DISTINCT w.queue FROM pawl.route w WHERE w.id = ANY (s.routes) ORDER BY 1) AS queues,
       ARRAY(SELECT DISTINCT d.workflow FROM pawl.route w JOIN pawl.definition d ON d.id = w.definition WHERE w.id = ANY (s.routes) ORDER BY 1) AS workflows, s.id
  FROM pawl.session s CROSS JOIN (SELECT) one
 WHERE s.closed_at IS NULL;

-- Queues by what waits in them. It counts: with a million pending jobs that takes its time.
CREATE VIEW pawl.queues AS
SELECT w.queue, count(*) FILTER (WHERE j.state = 'pending' AND j.due_at <= pawl.now()) AS due, min(j.due_at) FILTER (WHERE j.state = 'pending' AND j.due_at <= pawl.now()) AS oldest_due_at,
       count(*) FILTER (WHERE j.state = 'pending' AND j.due_at > pawl.now()) AS later, count(*) FILTER (WHERE j.state = 'running') AS running,
       count(*) FILTER (WHERE j.state = 'uncertain') AS uncertain, count(*) FILTER (WHERE j.state = 'dead') AS dead
  FROM pawl.route w JOIN pawl.job j ON j.route = w.id
 GROUP BY w.queue;

SELECT pawl.make_partitions(30);
