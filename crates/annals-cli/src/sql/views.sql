-- The temporary views of `annals sql`: those of the file, with what is encoded there as JSON. `annals_json` and
-- `annals_value` are functions of its connection.

-- Channels that only trigger nodes, and the values of the executor, are left out; the result of a workflow is not.
CREATE TEMP VIEW v_state AS
SELECT s.thread, s.namespace, s.channel, s.seq, s.version, s.kind, s.payload, s.inline,
  coalesce(s.json, annals_value(s.thread, s.namespace, (SELECT k.id FROM main.checkpoint k WHERE k.seq = s.seq),
    s.channel)) AS json
FROM main.v_state s
WHERE s.channel NOT LIKE 'branch:to:%' AND s.channel NOT LIKE 'join:%'
  AND (substr(s.channel, 1, 2) <> '__' OR s.channel = '__end__');

CREATE TEMP VIEW v_channel_versions AS
SELECT v.thread, v.namespace, v.branch, v.ordinal, v.seq, v.channel, v.key, v.version, v.kind, v.task, v.payload,
  v.inline, coalesce(v.json, annals_json(coalesce(v.inline, (SELECT coalesce((SELECT b.data FROM main.blob b
    WHERE b.id = p.data AND typeof(p.data) = 'integer'), p.data)
  FROM main.payload p WHERE p.id = v.payload AND p.form < 4)))) AS json
FROM main.v_channel_versions v;

CREATE TEMP VIEW v_writes AS
SELECT w.thread, w.namespace, w.checkpoint, w.task, w.idx, w.part, w.channel, w.consumed_by, w.path, w.payload,
  w.inline, w.seq, w.position, coalesce(w.json, annals_json(coalesce(w.inline, (SELECT coalesce((SELECT b.data FROM main.blob b
    WHERE b.id = p.data AND typeof(p.data) = 'integer'), p.data)
  FROM main.payload p WHERE p.id = w.payload AND p.form < 4)))) AS json
FROM main.v_writes w;

CREATE TEMP VIEW v_signals AS
SELECT s.thread, s.name, s.position, s.seq, s.sent_at, s.received_at, s.payload, s.inline,
  coalesce(s.json, annals_json(coalesce(s.inline, (SELECT coalesce((SELECT b.data FROM main.blob b
    WHERE b.id = p.data AND typeof(p.data) = 'integer'), p.data)
  FROM main.payload p WHERE p.id = s.payload AND p.form < 4)))) AS json
FROM main.v_signals s;

CREATE TEMP VIEW v_steps AS
SELECT s.thread, s.namespace, s.seq, s.checkpoint, s.step, s.position, s.task, s.node, s.state, s.started_at,
  s.ended_at, s.seconds, s.error, s.attempt, s.handled, s.is_call, s.wake_at, s.attempts,
  coalesce(s.result, (SELECT annals_json(coalesce(w.inline, (SELECT coalesce((SELECT b.data FROM main.blob b
    WHERE b.id = p.data AND typeof(p.data) = 'integer'), p.data)
  FROM main.payload p WHERE p.id = w.payload AND p.form < 4)))
    FROM main.v_writes w WHERE w.seq = s.seq AND w.task = s.task AND w.idx >= 0
      AND w.channel IN ('__return__', '__end__') LIMIT 1)) AS result
FROM main.v_steps s;

-- An update has the actor of its handle in the metadata of its checkpoint.
CREATE TEMP VIEW v_operations AS
SELECT o.seq, o.operation, o.kind, o.at, coalesce(o.actor, (SELECT k.metadata ->> '$.actor' FROM main.checkpoint k
    WHERE o.operation IS NULL AND k.seq = o.seq AND typeof(k.metadata) = 'text' AND json_valid(k.metadata))) AS actor,
  o.thread, o.run, o.checkpoint, o.changes
FROM main.v_operations o;
