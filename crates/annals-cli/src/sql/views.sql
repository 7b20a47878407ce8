-- The views of the connections of this library. They have what the views of the file have, with ids as texts and with
-- what is encoded there as JSON, and the views that follow from several rows. `annals_id`, `annals_json`, `annals_tasks`
-- and `annals_ranges` decode columns; `annals_thread`, `annals_steps`, `annals_usage` and `annals_value` read the store.

CREATE TEMP VIEW v_payloads AS
SELECT p.id AS payload, annals_json(coalesce(b.data, p.data)) AS json
FROM main.payload p LEFT JOIN main.blob b ON typeof(p.data) = 'integer' AND b.id = p.data
WHERE p.form < 4 AND coalesce((SELECT k.cipher FROM main.store_key k WHERE k.id = 0), 'blake3') = 'blake3';

CREATE TEMP VIEW v_checkpoints AS
SELECT c.seq, c.thread, c.namespace, annals_id(c.checkpoint) AS checkpoint, annals_id(c.parent) AS parent, c.branch, c.ordinal,
  c.step, c.source, c.created_at, annals_id(c.run) AS run, c.nodes,
  (SELECT json_group_array(f.text) FROM main.checkpoint k CROSS JOIN json_each(annals_tasks(k.tasks)) j
    CROSS JOIN main.name f ON f.id = j.value ->> 1 WHERE k.seq = c.seq) AS next,
  c.metadata, lower(hex(c.sum)) AS sum, c.is_head,
  (SELECT w.json ->> '$' FROM v_writes w WHERE w.seq = c.seq AND w.channel = '__error__' AND w.idx < 0 LIMIT 1) AS error
FROM main.v_checkpoints c;

-- The facts of a thread are computed once for its row.
CREATE TEMP VIEW v_threads AS
SELECT t.thread, t.created_at, t.namespaces, t.branches, t.checkpoints, t.updated_at, i.value ->> '$.status' AS status,
  i.value ->> '$.wake_at' AS wake_at, i.value ->> '$.error' AS error, t.title, t.project, t.labels, t.archived, t.pinned, t.graph,
  i.value ->> '$.messages' AS messages, i.value ->> '$.input_tokens' AS input_tokens,
  i.value ->> '$.output_tokens' AS output_tokens, i.value ->> '$.cost_usd' AS cost_usd
FROM main.v_threads t CROSS JOIN json_each(json_array(json(annals_thread(t.thread)))) i;

-- The items of all lists. A later row in the position, or a range delete, removes one.
CREATE TEMP VIEW v_items AS
SELECT t.public_id AS thread, n.path AS namespace, i.branch, ch.text AS channel, i.slot, i.ordinal,
  (SELECT v.ordinal + 1 + (v.kind >> 4) FROM main.version v WHERE v.branch = i.branch AND v.ordinal = i.ordinal
    ORDER BY v.key DESC LIMIT 1) AS seq,
  i.task, CASE typeof(i.value) WHEN 'integer' THEN i.value END AS payload,
  CASE typeof(i.value) WHEN 'blob' THEN i.value END AS inline,
  (SELECT v.ordinal + 1 + (v.kind >> 4) FROM main.version v WHERE v.branch = i.branch AND v.ordinal = (SELECT min(gone.ordinal) FROM (
      SELECT (SELECT r.ordinal FROM main.item r WHERE r.branch = i.branch AND r.channel = i.channel AND r.slot = i.slot
        AND r.ordinal > i.ordinal ORDER BY r.ordinal LIMIT 1) AS ordinal
      UNION ALL
      SELECT (SELECT d.ordinal FROM main.item d WHERE d.branch = i.branch AND d.channel = i.channel AND d.slot < -1 - i.ordinal
        AND d.op = 2 AND EXISTS (SELECT 1 FROM json_each(annals_ranges(d.value)) g
          WHERE i.slot >= g.value ->> 0 AND i.slot < g.value ->> 1) ORDER BY d.slot DESC LIMIT 1)) gone)
    ORDER BY v.key DESC LIMIT 1) AS removed_by
FROM main.item i JOIN main.branch br ON br.id = i.branch JOIN main.namespace n ON n.id = br.namespace
  JOIN main.thread t ON t.id = n.thread JOIN main.name ch ON ch.id = i.channel
WHERE i.op = 1;

CREATE TEMP VIEW v_messages AS
SELECT i.thread, i.namespace, i.branch, i.channel, i.slot, i.ordinal, i.seq,
  (SELECT k.created_at FROM main.v_checkpoints k WHERE k.seq = i.seq) AS created_at,
  (SELECT f.text FROM main.checkpoint k CROSS JOIN main.name f ON f.id = annals_tasks(k.tasks) ->> ('$[' || i.task || '][1]')
    WHERE k.seq = c.seq - c.parent) AS node,
  annals_id(p.item_id) AS id, p.kind, p.name,
  CASE typeof(p.text) WHEN 'integer' THEN (SELECT CAST(b.data AS TEXT) FROM main.blob b WHERE b.id = p.text) ELSE p.text END AS text,
  p.tool_calls, p.input_tokens, p.output_tokens,
  (SELECT j.json ->> '$.response_metadata.model_name' FROM v_payloads j WHERE j.payload = p.id) AS model, i.removed_by
FROM v_items i JOIN main.payload p ON p.id = i.payload LEFT JOIN main.checkpoint c ON c.seq = i.seq
WHERE p.kind IS NOT NULL;

CREATE TEMP VIEW v_writes AS
SELECT w.thread, w.namespace, annals_id(w.checkpoint) AS checkpoint, annals_id(w.task) AS task, w.idx, w.part, w.channel,
  annals_id(w.consumed_by) AS consumed_by, w.path, w.payload, w.inline, w.seq, w.position,
  coalesce(annals_json(w.inline), (SELECT j.json FROM v_payloads j WHERE j.payload = w.payload)) AS json
FROM main.v_writes w;

CREATE TEMP VIEW v_channel_versions AS
SELECT v.thread, v.namespace, v.branch, v.ordinal, v.seq, v.channel, v.key, v.version, v.kind, v.task, v.payload, v.inline,
  coalesce(annals_json(v.inline), (SELECT j.json FROM v_payloads j WHERE j.payload = v.payload AND v.kind = 'value')) AS json
FROM main.v_channel_versions v;

-- The channels at the heads. Those that only trigger nodes, and the values of the executor, are left out; the result of
-- a workflow is not.
CREATE TEMP VIEW v_state AS
SELECT h.thread, h.namespace, v.channel, h.seq, v.version, v.kind, v.payload, v.inline,
  coalesce(v.json, annals_value(h.thread, h.namespace, (SELECT k.id FROM main.checkpoint k WHERE k.seq = h.seq), v.channel)) AS json
FROM main.v_heads h CROSS JOIN json_each((
    WITH RECURSIVE span (branch, last) AS (
      SELECT c.branch, c.ordinal FROM main.checkpoint c WHERE c.seq = h.seq
      UNION ALL
      SELECT b.parent, b.upto FROM span JOIN main.branch b ON b.id = span.branch WHERE b.parent < b.id)
    SELECT json_group_array(json_array(l.branch, l.ordinal, l.key)) FROM (SELECT x.key, x.branch, max(x.ordinal) AS ordinal
      FROM span CROSS JOIN main.version x ON x.branch = span.branch AND x.ordinal <= span.last WHERE x.kind & 15 < 3 GROUP BY x.key) l)) j
  CROSS JOIN v_channel_versions v ON v.branch = j.value ->> 0 AND v.ordinal = j.value ->> 1 AND v.key = j.value ->> 2
WHERE v.channel NOT LIKE 'branch:to:%' AND v.channel NOT LIKE 'join:%' AND (substr(v.channel, 1, 2) <> '__' OR v.channel = '__end__');

-- The steps of a checkpoint. Its superstep ended with the first checkpoint that continues it, unless it is a head.
CREATE TEMP VIEW v_steps AS
SELECT t.public_id AS thread, n.path AS namespace, k.seq, annals_id(k.id) AS checkpoint, k.ordinal - k.step + 1 AS step,
  (SELECT j.key FROM json_each(annals_tasks(k.tasks)) j WHERE j.value ->> 0 = s.value ->> '$.task') AS position,
  s.value ->> '$.task' AS task, s.value ->> '$.node' AS node, s.value ->> '$.state' AS state,
  s.value ->> '$.started_at' AS started_at, s.value ->> '$.ended_at' AS ended_at, s.value ->> '$.seconds' AS seconds,
  s.value ->> '$.error' AS error, s.value ->> '$.attempt' AS attempt, s.value ->> '$.handled' AS handled,
  s.value ->> '$.call' AS is_call, s.value ->> '$.wake_at' AS wake_at, s.value -> '$.attempts' AS attempts,
  s.value -> '$.result' AS result
FROM main.checkpoint k JOIN main.namespace n ON n.id = k.namespace JOIN main.thread t ON t.id = n.thread
  CROSS JOIN json_each(annals_steps(t.public_id, n.path, k.id, CASE WHEN k.seq NOT IN (SELECT h.seq FROM main.v_heads h) THEN
    (SELECT v.id FROM main.checkpoint v WHERE v.namespace = k.namespace AND v.prefix >= k.prefix AND v.seq - v.parent = k.seq
      AND v.source & 3 = 1 ORDER BY v.prefix, v.seq LIMIT 1) END)) s
WHERE k.tasks IS NOT NULL;

CREATE TEMP VIEW v_pending AS
SELECT s.thread, s.namespace, s.seq, s.checkpoint, s.position, s.task, s.node, s.state, s.wake_at, s.error,
  (SELECT w.json FROM v_writes w WHERE w.seq = s.seq AND w.task = s.task AND w.channel = '__interrupt__' AND w.idx < 0) AS interrupts,
  s.is_call
FROM main.v_heads h CROSS JOIN v_steps s ON s.seq = h.seq
WHERE s.state <> 'done';

CREATE TEMP VIEW v_usage AS
SELECT u.value ->> '$.day' AS day, t.public_id AS thread, u.value ->> '$.namespace' AS namespace, u.value ->> '$.seq' AS seq,
  u.value ->> '$.node' AS node, u.value ->> '$.model' AS model, u.value ->> '$.input_tokens' AS input_tokens,
  u.value ->> '$.output_tokens' AS output_tokens, u.value ->> '$.cost_usd' AS cost_usd
FROM main.thread t CROSS JOIN json_each(annals_usage(t.public_id)) u;

CREATE TEMP VIEW v_operations AS
SELECT o.seq, o.operation, o.kind, o.at, o.actor, o.thread, annals_id(o.run) AS run, annals_id(o.checkpoint) AS checkpoint, o.changes
FROM main.v_operations o;

CREATE TEMP VIEW v_signals AS
SELECT i.thread, i.channel AS name, i.slot AS position, i.seq, c.created_at AS sent_at, r.created_at AS received_at, i.payload, i.inline,
  coalesce(annals_json(i.inline), (SELECT j.json FROM v_payloads j WHERE j.payload = i.payload)) AS json
FROM v_items i LEFT JOIN main.v_checkpoints c ON c.seq = i.seq LEFT JOIN main.v_checkpoints r ON r.seq = i.removed_by
WHERE i.namespace = 'signals:mailbox';

CREATE TEMP VIEW v_timers AS
SELECT r.thread, r.namespace, annals_id(r.checkpoint) AS checkpoint, annals_id(r.task) AS task, r.wake_at FROM main.v_timers r;

CREATE TEMP VIEW v_kv AS
SELECT k.namespace, k.key, k.created_at, k.updated_at, k.expires_at, k.codec, k.data,
  CASE k.codec WHEN 0 THEN annals_json(k.data) END AS json
FROM main.v_kv k;
