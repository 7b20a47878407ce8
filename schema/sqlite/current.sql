-- The schema of a new file of format 2, as SQLite shows it. A test compares the two.

CREATE TABLE name (
  id INTEGER PRIMARY KEY,          -- small number that stands for the name everywhere else
  kind INTEGER NOT NULL,           -- 0 channel, 1 node, 2 task that no checkpoint prepared, 3 list channel (of item rows)
  text TEXT NOT NULL,              -- the name; of a task its UUID, hyphenated
  xxh3 INTEGER NOT NULL,           -- check of the row
  UNIQUE (kind, text)
) STRICT;

CREATE TABLE thread (
  id INTEGER PRIMARY KEY,          -- internal number
  public_id TEXT NOT NULL UNIQUE,  -- the id the caller chose
  created_at INTEGER NOT NULL,     -- created_at of its first checkpoint, microseconds since 1970-01-01T00:00:00Z
  xxh3 INTEGER NOT NULL            -- check of the row
) STRICT;

CREATE TABLE namespace (
  id INTEGER PRIMARY KEY,          -- internal number
  thread INTEGER NOT NULL,         -- thread.id
  path TEXT NOT NULL,              -- '' for the root graph, 'node:task_id|child:task_id' for subgraphs
  xxh3 INTEGER NOT NULL,           -- check of the row
  UNIQUE (thread, path)
) STRICT;

CREATE TABLE branch (
  id INTEGER PRIMARY KEY,          -- internal number; greater than its parent's
  namespace INTEGER NOT NULL,      -- namespace.id of the checkpoints on it
  parent INTEGER,                  -- branch.id it left, NULL if it starts from the empty state
  upto INTEGER,                    -- the last ordinal it shares with its parent, NULL without one
  depth INTEGER NOT NULL,          -- number of ancestors
  fork_thread INTEGER,             -- thread.id of its parent if that is another thread's, else NULL
  fork_checkpoint INTEGER,         -- checkpoint.seq it left if that is another thread's, else NULL
  xxh3 INTEGER NOT NULL            -- check of the row
) STRICT;

CREATE INDEX branch_namespace ON branch (namespace);

CREATE INDEX branch_fork ON branch (fork_thread) WHERE fork_thread IS NOT NULL;

CREATE TABLE checkpoint (
  seq INTEGER PRIMARY KEY,         -- order of the log of the whole file
  namespace INTEGER NOT NULL,      -- namespace.id
  id BLOB NOT NULL,                -- public id, 16 bytes (UUIDv6); the newest of a namespace is the greatest
  parent INTEGER,                  -- seq minus that of its parent, also in another thread; NULL for the empty state
  branch INTEGER NOT NULL,         -- branch.id
  ordinal INTEGER NOT NULL,        -- distance from the first checkpoint of its lineage
  step INTEGER NOT NULL,           -- number of the superstep, -1 for the first input
  source INTEGER NOT NULL,         -- 0 input, 1 loop, 2 update, 3 fork; plus 4 * (rows of write that it consumed and stored)
  created_at INTEGER NOT NULL,     -- microseconds since 1970-01-01T00:00:00Z
  run BLOB,                        -- id of the run that made it, 16 bytes
  metadata ANY,                    -- TEXT: JSON object; BLOB: the same, sealed; or NULL
  parents BLOB,                    -- where the graphs around this one stood: ids and paths; NULL for none
  tasks BLOB,                      -- tasks due next: count, ids, then names and triggers; NULL if none
  sum BLOB NOT NULL,               -- 16-byte BLAKE3 over all content of the checkpoint and the sum of its parent
  xxh3 INTEGER NOT NULL            -- check of the row, of thread and path, and of the parent's id
) STRICT;

CREATE UNIQUE INDEX checkpoint_id ON checkpoint (namespace, id);

CREATE INDEX checkpoint_place ON checkpoint (branch, ordinal);

CREATE INDEX checkpoint_run ON checkpoint (run, namespace, id) WHERE substr(run, 7, 1) BETWEEN X'80' AND X'8f';

CREATE TABLE version (
  branch INTEGER NOT NULL,         -- branch.id
  ordinal INTEGER NOT NULL,        -- ordinal of the checkpoint
  key INTEGER NOT NULL,            -- name.id of the channel (kind 0-2) or node (kind 3); 0 for kinds 4 and 5
  version INTEGER NOT NULL,        -- version of the channel minus the ordinal; 0 for kinds 3 to 5
  kind INTEGER NOT NULL,           -- 0 empty, 1 value, 2 list, 3 versions a node has seen, 4 anchor, 5 no changes
  task INTEGER,                    -- position of the writing task in the tasks of the parent checkpoint
  value ANY,                       -- kind 1: payload.id or inline value; kind 2: end of the list; 3, 4: packed numbers; else NULL
  xxh3 INTEGER,                    -- check of the rows of the checkpoint, on that with the greatest key
  PRIMARY KEY (branch, ordinal, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE payload (
  id INTEGER PRIMARY KEY,          -- what item, version and write rows hold
  form INTEGER NOT NULL,           -- 4 * codec (0 MessagePack, else foreign) + 2 * (any of name to output_tokens is
                                   -- known) + (an item with an index: any column from item_id on may be known)
  xxh3 INTEGER NOT NULL,           -- check of the id and all logical fields, verified wherever the value is decoded
  data ANY NOT NULL,               -- BLOB: the encoded value; INTEGER: blob.id
  item_id ANY,                     -- id of the item (message): BLOB of 16 bytes if a canonical UUID, else TEXT
  kind TEXT,                       -- type of the item: human, ai, tool, ...
  text ANY,                        -- TEXT: what the item says; INTEGER: blob.id
  name TEXT,                       -- who speaks
  tool_calls TEXT,                 -- ids of the tool calls made or answered: JSON list
  input_tokens INTEGER,            -- tokens read
  output_tokens INTEGER            -- tokens written
) STRICT;

CREATE INDEX payload_item ON payload (substr(item_id, -6)) WHERE item_id IS NOT NULL;

CREATE INDEX payload_data ON payload (data) WHERE typeof(data) = 'integer';

CREATE INDEX payload_text ON payload (text) WHERE typeof(text) = 'integer';

CREATE TABLE blob (
  id INTEGER PRIMARY KEY,          -- what payload rows hold
  hash BLOB NOT NULL UNIQUE,       -- first 16 bytes of the BLAKE3 hash of data
  data ANY NOT NULL                -- BLOB or TEXT of 1,536 bytes and more, stored once per content
) STRICT;

CREATE TABLE item (
  branch INTEGER NOT NULL,         -- branch.id
  channel INTEGER NOT NULL,        -- name.id of kind 3
  slot INTEGER NOT NULL,           -- position in the list; -1 - ordinal for the cuts or the share of a checkpoint
  ordinal INTEGER NOT NULL,        -- ordinal of the checkpoint
  op INTEGER NOT NULL,             -- 0 remove, 1 put, 2 cut, 3 share
  task INTEGER,                    -- position of the writing task in the tasks of the parent checkpoint
  value ANY,                       -- put: payload.id or inline value; cut: packed ranges; share: which list; remove: NULL
  xxh3 INTEGER NOT NULL,           -- check of the row
  PRIMARY KEY (branch, channel, slot, ordinal DESC)
) STRICT, WITHOUT ROWID;

CREATE TABLE write (
  checkpoint INTEGER NOT NULL,     -- checkpoint.seq whose task wrote
  task INTEGER NOT NULL,           -- position in the tasks of the checkpoint, or -name.id of a task not among them
  idx INTEGER NOT NULL,            -- position of the write in the task; negative for special slots, which are replaced
  part INTEGER NOT NULL,           -- 0 null or one value; 1, 2, ... items of a list; 1 with a NULL value: an empty list; -1 before the items of a delta
  channel INTEGER NOT NULL,        -- name.id
  value ANY,                       -- payload.id or inline value, NULL for null
  child INTEGER,                   -- seq of the checkpoint that consumed and stored it, minus checkpoint; NULL if it was stored on its own
  path TEXT,                       -- path of the task, NULL if it is the one derived from the prepared task
  sum ANY,                         -- on the first row of a run: its sum and length, or its check if child is set
  PRIMARY KEY (checkpoint, task, idx, part)
) STRICT, WITHOUT ROWID;

CREATE TABLE timer (
  namespace INTEGER NOT NULL,      -- namespace.id of the checkpoint
  task BLOB NOT NULL,              -- id of the task that sleeps, 16 bytes
  checkpoint INTEGER NOT NULL,     -- checkpoint.seq whose task it is
  wake_at INTEGER NOT NULL,        -- moment from which on it can go on, microseconds since 1970-01-01T00:00:00Z
  xxh3 INTEGER NOT NULL,           -- XXH3-64 over the id of the checkpoint, the task and the moment
  PRIMARY KEY (namespace, task)
) STRICT, WITHOUT ROWID;

CREATE INDEX timer_wake ON timer (wake_at);

CREATE TABLE operation (
  id INTEGER PRIMARY KEY,          -- order of the operations of the file
  kind INTEGER NOT NULL,           -- 0 rewind, 1 switch, 2 names of branches, 3 facts, 4 undo, 5 redo
  seq INTEGER NOT NULL,            -- greatest checkpoint.seq of the file when it was made
  at INTEGER NOT NULL,             -- microseconds since 1970-01-01T00:00:00Z
  actor TEXT,                      -- who made it, as the program says, or NULL
  target ANY,                      -- undo and redo: operation.id, or the id of the last checkpoint of a run; else NULL
  changes INTEGER NOT NULL,        -- number of its rows in operation_change
  xxh3 INTEGER NOT NULL            -- check of the row
) STRICT;

CREATE TABLE operation_change (
  namespace INTEGER NOT NULL,      -- namespace.id
  kind INTEGER NOT NULL,           -- 0 head, 1 named branch, 2 name of the current branch, 3 fact
  key TEXT NOT NULL,               -- kind 1: the name of the branch; kind 3: the name of the fact; else empty
  operation INTEGER NOT NULL,      -- operation.id
  newest INTEGER NOT NULL,         -- greatest checkpoint.seq of the namespace when it was made: a head is moved until there is a greater one
  before ANY,                      -- kinds 0 and 1: checkpoint.seq; kinds 2 and 3: TEXT, or sealed; NULL for none
  after ANY,                       -- the same after the operation
  xxh3 INTEGER NOT NULL,           -- check of the row
  PRIMARY KEY (namespace, kind, key, operation)
) STRICT, WITHOUT ROWID;

CREATE INDEX operation_change_operation ON operation_change (operation);

CREATE INDEX operation_change_namespace ON operation_change (namespace, operation);

CREATE TABLE erasure (
  thread INTEGER PRIMARY KEY       -- thread.id, or 0 for a value that was replaced
) STRICT;

CREATE TABLE tombstone (
  thread INTEGER PRIMARY KEY,      -- thread.id of a deleted thread; its row of thread is gone
  state INTEGER NOT NULL           -- 0 other rows of it are still stored, 1 only the log beside the file may hold them
) STRICT;

CREATE TABLE high_water (
  id INTEGER PRIMARY KEY,          -- 0: one row, from the first deletion on
  name INTEGER NOT NULL,           -- greatest name.id at the last deletion; later rows have greater ones
  thread INTEGER NOT NULL,         -- greatest thread.id
  namespace INTEGER NOT NULL,      -- greatest namespace.id
  branch INTEGER NOT NULL,         -- greatest branch.id
  checkpoint INTEGER NOT NULL,     -- greatest checkpoint.seq
  payload INTEGER NOT NULL,        -- greatest payload.id
  blob INTEGER NOT NULL,           -- greatest blob.id
  names_erased INTEGER NOT NULL,   -- number of erased names
  operation INTEGER NOT NULL       -- greatest operation.id
) STRICT;

CREATE TABLE name_user (
  thread INTEGER NOT NULL,         -- thread.id of one of the first 8 users of the name; 0 if there were more: it stays
  name INTEGER NOT NULL,           -- name.id
  PRIMARY KEY (thread, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX name_user_name ON name_user (name);

CREATE TABLE kv_namespace (
  id INTEGER PRIMARY KEY,          -- order of the first put into it
  path TEXT NOT NULL UNIQUE        -- its labels, joined by dots; no label holds one
) STRICT;

CREATE TABLE kv (
  id INTEGER PRIMARY KEY,          -- order of the first put of the key
  namespace INTEGER NOT NULL,      -- kv_namespace.id
  key TEXT NOT NULL,               -- the key, unique in the namespace
  created_at INTEGER NOT NULL,     -- moment of the first put, microseconds since 1970-01-01T00:00:00Z
  updated_at INTEGER NOT NULL,     -- moment of the last put
  expires_at INTEGER,              -- moment from which on it is gone, NULL if it stays
  xxh3 INTEGER NOT NULL,           -- XXH3-64 over path, key, moments and value, verified wherever the value is decoded
  codec INTEGER NOT NULL,          -- 0 MessagePack, else foreign
  data BLOB NOT NULL               -- the encoded value
) STRICT;

CREATE UNIQUE INDEX kv_key ON kv (namespace, key);

CREATE INDEX kv_order ON kv (namespace);

CREATE INDEX kv_expiry ON kv (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE kv_vector (
  entry INTEGER NOT NULL,          -- kv.id
  position INTEGER NOT NULL,       -- 0, 1, ... in the order of the indexed fields
  field TEXT NOT NULL,             -- path of the field whose text it embeds
  dims INTEGER NOT NULL,           -- number of components
  data BLOB NOT NULL,              -- the components: 32-bit floats, lowest byte first
  xxh3 INTEGER NOT NULL,           -- check of the row
  PRIMARY KEY (entry, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE kv_lifetime (
  entry INTEGER PRIMARY KEY,       -- kv.id
  lifetime INTEGER NOT NULL,       -- microseconds from a read that prolongs the entry to its expiry
  xxh3 INTEGER NOT NULL            -- check of the row
) STRICT;

CREATE TABLE cache (
  id INTEGER PRIMARY KEY,          -- internal number
  namespace BLOB NOT NULL,         -- its labels, each followed by a 0 byte
  key TEXT NOT NULL,               -- the key, unique in the namespace
  expires_at INTEGER,              -- moment from which on it is gone, NULL if it stays
  xxh3 INTEGER NOT NULL,           -- XXH3-64 over namespace, key, moment and value, verified wherever the value is decoded
  codec INTEGER NOT NULL,          -- 0 MessagePack, else foreign
  data BLOB NOT NULL               -- the encoded value
) STRICT;

CREATE UNIQUE INDEX cache_key ON cache (namespace, key);

CREATE INDEX cache_expiry ON cache (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE store_key (
  id INTEGER PRIMARY KEY,          -- 0: the root key, or the verifier; 1, 2, ...: data keys, of which the greatest seals new values
  cipher TEXT NOT NULL,            -- the cipher that sealed it and seals the content; blake3: checksums alone have a key
  caller TEXT NOT NULL,            -- row 0: id of the caller's key; empty for a data key
  file BLOB,                       -- row 0: random id of the file, 16 bytes; NULL for a data key
  sealed BLOB NOT NULL             -- row 0: the root key, sealed with the caller's key, or the verifier; else sealed with the root key
) STRICT;

CREATE TRIGGER name_no_update BEFORE UPDATE ON name
BEGIN SELECT RAISE(ABORT, 'annals: name is append-only'); END;

CREATE TRIGGER name_no_delete BEFORE DELETE ON name WHEN NOT EXISTS (SELECT 1 FROM erasure)
BEGIN SELECT RAISE(ABORT, 'annals: name is append-only'); END;

CREATE TRIGGER thread_no_update BEFORE UPDATE ON thread
BEGIN SELECT RAISE(ABORT, 'annals: thread is append-only'); END;

CREATE TRIGGER thread_no_delete BEFORE DELETE ON thread WHEN NOT EXISTS (SELECT 1 FROM erasure)
BEGIN SELECT RAISE(ABORT, 'annals: thread is append-only'); END;

CREATE TRIGGER namespace_no_update BEFORE UPDATE ON namespace
BEGIN SELECT RAISE(ABORT, 'annals: namespace is append-only'); END;

CREATE TRIGGER namespace_no_delete BEFORE DELETE ON namespace WHEN NOT EXISTS (SELECT 1 FROM erasure)
BEGIN SELECT RAISE(ABORT, 'annals: namespace is append-only'); END;

CREATE TRIGGER branch_no_update BEFORE UPDATE ON branch
BEGIN SELECT RAISE(ABORT, 'annals: branch is append-only'); END;

CREATE TRIGGER branch_no_delete BEFORE DELETE ON branch WHEN NOT EXISTS (SELECT 1 FROM erasure)
BEGIN SELECT RAISE(ABORT, 'annals: branch is append-only'); END;

CREATE TRIGGER checkpoint_no_update BEFORE UPDATE ON checkpoint
BEGIN SELECT RAISE(ABORT, 'annals: checkpoint is append-only'); END;

CREATE TRIGGER checkpoint_no_delete BEFORE DELETE ON checkpoint WHEN NOT EXISTS (SELECT 1 FROM erasure)
BEGIN SELECT RAISE(ABORT, 'annals: checkpoint is append-only'); END;

CREATE TRIGGER version_no_update BEFORE UPDATE ON version
BEGIN SELECT RAISE(ABORT, 'annals: version is append-only'); END;

CREATE TRIGGER version_no_delete BEFORE DELETE ON version WHEN NOT EXISTS (SELECT 1 FROM erasure)
BEGIN SELECT RAISE(ABORT, 'annals: version is append-only'); END;

CREATE TRIGGER payload_no_update BEFORE UPDATE ON payload
BEGIN SELECT RAISE(ABORT, 'annals: payload is append-only'); END;

CREATE TRIGGER payload_no_delete BEFORE DELETE ON payload WHEN NOT EXISTS (SELECT 1 FROM erasure)
BEGIN SELECT RAISE(ABORT, 'annals: payload is append-only'); END;

CREATE TRIGGER blob_no_update BEFORE UPDATE ON blob
BEGIN SELECT RAISE(ABORT, 'annals: blob is append-only'); END;

CREATE TRIGGER blob_no_delete BEFORE DELETE ON blob WHEN NOT EXISTS (SELECT 1 FROM erasure)
BEGIN SELECT RAISE(ABORT, 'annals: blob is append-only'); END;

CREATE TRIGGER item_no_update BEFORE UPDATE ON item
BEGIN SELECT RAISE(ABORT, 'annals: item is append-only'); END;

CREATE TRIGGER item_no_delete BEFORE DELETE ON item WHEN NOT EXISTS (SELECT 1 FROM erasure)
BEGIN SELECT RAISE(ABORT, 'annals: item is append-only'); END;

CREATE TRIGGER write_no_update BEFORE UPDATE ON write
BEGIN SELECT RAISE(ABORT, 'annals: write is append-only'); END;

CREATE TRIGGER write_no_delete BEFORE DELETE ON write WHEN OLD.idx >= 0 AND NOT EXISTS (SELECT 1 FROM erasure)
BEGIN SELECT RAISE(ABORT, 'annals: write is append-only, but for the special slots'); END;

CREATE TRIGGER operation_no_update BEFORE UPDATE ON operation
BEGIN SELECT RAISE(ABORT, 'annals: operation is append-only'); END;

CREATE TRIGGER operation_no_delete BEFORE DELETE ON operation WHEN NOT EXISTS (SELECT 1 FROM erasure)
BEGIN SELECT RAISE(ABORT, 'annals: operation is append-only'); END;

CREATE TRIGGER operation_change_no_update BEFORE UPDATE ON operation_change
BEGIN SELECT RAISE(ABORT, 'annals: operation_change is append-only'); END;

CREATE TRIGGER operation_change_no_delete BEFORE DELETE ON operation_change WHEN NOT EXISTS (SELECT 1 FROM erasure)
BEGIN SELECT RAISE(ABORT, 'annals: operation_change is append-only'); END;

CREATE VIEW v_timers (thread, namespace, checkpoint, task, wake_at) AS
SELECT t.public_id, n.path,
  lower(substr(hex(c.id), 1, 8) || '-' || substr(hex(c.id), 9, 4) || '-' || substr(hex(c.id), 13, 4) || '-'
    || substr(hex(c.id), 17, 4) || '-' || substr(hex(c.id), 21)),
  lower(substr(hex(r.task), 1, 8) || '-' || substr(hex(r.task), 9, 4) || '-' || substr(hex(r.task), 13, 4) || '-'
    || substr(hex(r.task), 17, 4) || '-' || substr(hex(r.task), 21)),
  strftime('%Y-%m-%dT%H:%M:%S', r.wake_at / 1000000, 'unixepoch') || printf('.%06dZ', r.wake_at % 1000000)
FROM timer r JOIN checkpoint c ON c.seq = r.checkpoint JOIN namespace n ON n.id = r.namespace
  JOIN thread t ON t.id = n.thread;

CREATE VIEW v_checkpoints (seq, thread, namespace, checkpoint, parent, branch, ordinal, step, source, created_at, run,
  nodes, next, metadata, sum) AS
SELECT c.seq, t.public_id, n.path,
  lower(substr(hex(c.id), 1, 8) || '-' || substr(hex(c.id), 9, 4) || '-' || substr(hex(c.id), 13, 4) || '-'
    || substr(hex(c.id), 17, 4) || '-' || substr(hex(c.id), 21)),
  (SELECT lower(substr(hex(p.id), 1, 8) || '-' || substr(hex(p.id), 9, 4) || '-' || substr(hex(p.id), 13, 4) || '-'
    || substr(hex(p.id), 17, 4) || '-' || substr(hex(p.id), 21)) FROM checkpoint p WHERE p.seq = c.seq - c.parent),
  c.branch, c.ordinal, c.step,
  CASE c.source & 3 WHEN 0 THEN 'input' WHEN 1 THEN 'loop' WHEN 2 THEN 'update' WHEN 3 THEN 'fork' END,
  strftime('%Y-%m-%dT%H:%M:%S', c.created_at / 1000000, 'unixepoch') || printf('.%06dZ', c.created_at % 1000000),
  lower(substr(hex(c.run), 1, 8) || '-' || substr(hex(c.run), 9, 4) || '-' || substr(hex(c.run), 13, 4) || '-'
    || substr(hex(c.run), 17, 4) || '-' || substr(hex(c.run), 21)),
  (SELECT json_group_array(f.text) FROM version v JOIN name f ON f.id = v.key
    WHERE v.branch = c.branch AND v.ordinal = c.ordinal AND v.kind = 3),
  (WITH RECURSIVE part (h, at, byte, done, field, triggers, value, unit, node) AS (
      SELECT h, at, (instr('0123456789ABCDEF', substr(h, 2 * at - 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(h, 2 * at, 1)) - 1,
        0, 0, 0, 0, 1, NULL
      FROM (SELECT h, 4 + 16 * ((instr('0123456789ABCDEF', substr(h, 3, 1)) - 1) * 4096 + (instr('0123456789ABCDEF', substr(h, 4, 1)) - 1) * 256
          + (instr('0123456789ABCDEF', substr(h, 5, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(h, 6, 1)) - 1) AS at
        FROM (SELECT hex(c.tasks) AS h WHERE c.tasks IS NOT NULL))
      UNION ALL
      SELECT h, at + 1, (instr('0123456789ABCDEF', substr(h, 2 * at + 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(h, 2 * at + 2, 1)) - 1,
        done + (byte < 128 AND ((field = 1 AND ((value + byte * unit) % 2 = 1 OR value + byte * unit = 0))
          OR (field = 2 AND triggers = 1))),
        CASE WHEN byte > 127 THEN field WHEN field = 0 THEN 1
          WHEN field = 1 AND (value + byte * unit) % 2 = 0 AND value + byte * unit > 0 THEN 2
          WHEN field = 2 AND triggers > 1 THEN 2 ELSE 0 END,
        CASE WHEN byte > 127 OR field = 0 THEN triggers WHEN field = 1 THEN (value + byte * unit) / 2 ELSE triggers - 1 END,
        CASE WHEN byte > 127 THEN value + (byte - 128) * unit ELSE 0 END,
        CASE WHEN byte > 127 THEN unit * 128 ELSE 1 END,
        CASE WHEN byte < 128 AND field = 0 THEN value + byte * unit END
      FROM part WHERE 2 * at <= length(h))
    SELECT json_group_array(f.text) FROM part CROSS JOIN name f ON f.id = part.node),
  c.metadata, lower(hex(c.sum))
FROM checkpoint c JOIN namespace n ON n.id = c.namespace JOIN thread t ON t.id = n.thread;

CREATE VIEW v_threads (thread, created_at, namespaces, branches, checkpoints) AS
SELECT t.public_id,
  strftime('%Y-%m-%dT%H:%M:%S', t.created_at / 1000000, 'unixepoch') || printf('.%06dZ', t.created_at % 1000000),
  (SELECT count(*) FROM namespace n WHERE n.thread = t.id),
  (SELECT count(*) FROM branch b JOIN namespace n ON n.id = b.namespace WHERE n.thread = t.id),
  (SELECT count(*) FROM namespace n JOIN checkpoint c ON c.namespace = n.id WHERE n.thread = t.id)
FROM thread t;

CREATE VIEW v_messages (thread, namespace, branch, channel, slot, ordinal, seq, created_at, node, id, kind, name, text,
  tool_calls, input_tokens, output_tokens) AS
SELECT t.public_id, n.path, i.branch, ch.text, i.slot, i.ordinal,
  (SELECT c.seq FROM checkpoint c WHERE c.branch = i.branch AND c.ordinal = i.ordinal),
  (SELECT strftime('%Y-%m-%dT%H:%M:%S', c.created_at / 1000000, 'unixepoch')
    || printf('.%06dZ', c.created_at % 1000000) FROM checkpoint c WHERE c.branch = i.branch AND c.ordinal = i.ordinal),
  (WITH RECURSIVE part (h, at, byte, done, field, triggers, value, unit, node) AS (
      SELECT h, at, (instr('0123456789ABCDEF', substr(h, 2 * at - 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(h, 2 * at, 1)) - 1,
        0, 0, 0, 0, 1, NULL
      FROM (SELECT h, 4 + 16 * ((instr('0123456789ABCDEF', substr(h, 3, 1)) - 1) * 4096 + (instr('0123456789ABCDEF', substr(h, 4, 1)) - 1) * 256
          + (instr('0123456789ABCDEF', substr(h, 5, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(h, 6, 1)) - 1) AS at
        FROM (SELECT hex(q.tasks) AS h FROM checkpoint c CROSS JOIN checkpoint q ON q.seq = c.seq - c.parent
          WHERE c.branch = i.branch AND c.ordinal = i.ordinal AND i.task IS NOT NULL))
      UNION ALL
      SELECT h, at + 1, (instr('0123456789ABCDEF', substr(h, 2 * at + 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(h, 2 * at + 2, 1)) - 1,
        done + (byte < 128 AND ((field = 1 AND ((value + byte * unit) % 2 = 1 OR value + byte * unit = 0))
          OR (field = 2 AND triggers = 1))),
        CASE WHEN byte > 127 THEN field WHEN field = 0 THEN 1
          WHEN field = 1 AND (value + byte * unit) % 2 = 0 AND value + byte * unit > 0 THEN 2
          WHEN field = 2 AND triggers > 1 THEN 2 ELSE 0 END,
        CASE WHEN byte > 127 OR field = 0 THEN triggers WHEN field = 1 THEN (value + byte * unit) / 2 ELSE triggers - 1 END,
        CASE WHEN byte > 127 THEN value + (byte - 128) * unit ELSE 0 END,
        CASE WHEN byte > 127 THEN unit * 128 ELSE 1 END,
        CASE WHEN byte < 128 AND field = 0 AND done = i.task THEN value + byte * unit END
      FROM part WHERE node IS NULL AND 2 * at <= length(h))
    SELECT f.text FROM part JOIN name f ON f.id = part.node),
  CASE typeof(p.item_id) WHEN 'blob' THEN
    lower(substr(hex(p.item_id), 1, 8) || '-' || substr(hex(p.item_id), 9, 4) || '-' || substr(hex(p.item_id), 13, 4)
      || '-' || substr(hex(p.item_id), 17, 4) || '-' || substr(hex(p.item_id), 21))
  ELSE p.item_id END,
  p.kind, p.name,
  CASE typeof(p.text) WHEN 'integer' THEN (SELECT CAST(b.data AS TEXT) FROM blob b WHERE b.id = p.text) ELSE p.text END,
  p.tool_calls, p.input_tokens, p.output_tokens
FROM item i JOIN branch br ON br.id = i.branch JOIN namespace n ON n.id = br.namespace
  JOIN thread t ON t.id = n.thread JOIN name ch ON ch.id = i.channel JOIN payload p ON p.id = i.value
WHERE i.op = 1 AND p.kind IS NOT NULL;

CREATE VIEW v_writes (thread, namespace, checkpoint, task, idx, part, channel, consumed_by, path, payload, inline) AS
SELECT t.public_id, n.path,
  lower(substr(hex(c.id), 1, 8) || '-' || substr(hex(c.id), 9, 4) || '-' || substr(hex(c.id), 13, 4) || '-'
    || substr(hex(c.id), 17, 4) || '-' || substr(hex(c.id), 21)),
  CASE WHEN w.task < 0 THEN (SELECT f.text FROM name f WHERE f.id = -w.task) ELSE
    (SELECT lower(substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-' || substr(h, 13, 4) || '-' || substr(h, 17, 4)
      || '-' || substr(h, 21)) FROM (SELECT hex(substr(c.tasks, 4 + 16 * w.task, 16)) AS h)) END,
  w.idx, w.part, ch.text,
  (SELECT lower(substr(hex(k.id), 1, 8) || '-' || substr(hex(k.id), 9, 4) || '-' || substr(hex(k.id), 13, 4) || '-'
    || substr(hex(k.id), 17, 4) || '-' || substr(hex(k.id), 21)) FROM checkpoint k WHERE k.seq = w.checkpoint + w.child),
  w.path,
  CASE typeof(w.value) WHEN 'integer' THEN w.value END,
  CASE typeof(w.value) WHEN 'blob' THEN w.value END
FROM write w JOIN checkpoint c ON c.seq = w.checkpoint JOIN namespace n ON n.id = c.namespace
  JOIN thread t ON t.id = n.thread JOIN name ch ON ch.id = w.channel;

CREATE VIEW v_channel_versions (thread, namespace, branch, ordinal, channel, version, kind, task, payload, inline) AS
SELECT t.public_id, n.path, v.branch, v.ordinal, ch.text, v.version + v.ordinal,
  CASE v.kind WHEN 0 THEN 'empty' WHEN 1 THEN 'value' WHEN 2 THEN 'list' END, v.task,
  CASE typeof(v.value) WHEN 'integer' THEN v.value END,
  CASE WHEN v.kind = 1 AND typeof(v.value) = 'blob' THEN v.value END
FROM version v JOIN branch br ON br.id = v.branch JOIN namespace n ON n.id = br.namespace
  JOIN thread t ON t.id = n.thread JOIN name ch ON ch.id = v.key
WHERE v.kind < 3;

CREATE VIEW v_kv (namespace, key, created_at, updated_at, expires_at, codec, data) AS
SELECT n.path, k.key,
  strftime('%Y-%m-%dT%H:%M:%S', k.created_at / 1000000, 'unixepoch') || printf('.%06dZ', k.created_at % 1000000),
  strftime('%Y-%m-%dT%H:%M:%S', k.updated_at / 1000000, 'unixepoch') || printf('.%06dZ', k.updated_at % 1000000),
  strftime('%Y-%m-%dT%H:%M:%S', k.expires_at / 1000000, 'unixepoch') || printf('.%06dZ', k.expires_at % 1000000),
  k.codec, k.data
FROM kv k JOIN kv_namespace n ON n.id = k.namespace;
