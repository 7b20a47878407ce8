-- The schema of a new file of format 1, as SQLite shows it, and comments that a file does not hold. A test compares the two.

CREATE TABLE wal_mark (
  id INTEGER PRIMARY KEY,          -- 0
  store BLOB NOT NULL,             -- id of the store, 16 random bytes
  generation INTEGER NOT NULL,     -- number of the mark, one more than that of the mark before
  mark BLOB NOT NULL,              -- 16 random bytes
  before BLOB NOT NULL,            -- the mark before
  open INTEGER NOT NULL,           -- 0 nothing is missed without a log, 1 a synced log goes on from here, 2 one that is not synced
  xxh3 INTEGER NOT NULL            -- check of the row
) STRICT;

CREATE TABLE name (
  id INTEGER PRIMARY KEY,          -- small number that stands for the name everywhere else
  kind INTEGER NOT NULL,           -- 0 channel, 1 node, 2 path of tasks that no checkpoint prepared, 3 list channel (of item rows)
  text TEXT NOT NULL,              -- the name; of a path with # for a number of ten digits
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
  prefix BLOB AS (substr(id, 1, 6)) VIRTUAL, -- the first 6 bytes of the id, which an index holds: computed, not stored
  parent INTEGER,                  -- seq minus that of its parent, also in another thread; NULL for the empty state
  branch INTEGER NOT NULL,         -- branch.id
  ordinal INTEGER NOT NULL,        -- distance from the first checkpoint of its lineage
  step INTEGER NOT NULL,           -- ordinal minus the number of the superstep, which is -1 for the first input
  source INTEGER NOT NULL,         -- 0 input, 1 loop, 2 update, 3 fork; plus 4 * (rows of write that it consumed and stored)
  created_at INTEGER NOT NULL,     -- microseconds since 1970-01-01T00:00:00Z, or since the checkpoint that run leads to
  run ANY,                         -- BLOB: id of the run that made it, 16 bytes; INTEGER: seq minus that of the one with the id
  metadata ANY,                    -- TEXT: JSON object; BLOB: the same, sealed; or NULL
  parents BLOB,                    -- where the graphs around this one stood: ids and paths; NULL for none
  tasks BLOB,                      -- tasks due next: count, ids, then names and triggers; NULL if none
  app_version TEXT,                -- version of the application that wrote it, as that gave it, or NULL
  sum BLOB NOT NULL,               -- 16-byte BLAKE3 over all content of the checkpoint and the sum of its parent
  xxh3 INTEGER NOT NULL            -- check of the row, of thread and path, and of the parent's id
) STRICT;

CREATE INDEX checkpoint_id ON checkpoint (namespace, prefix);

CREATE INDEX checkpoint_run ON checkpoint (run, namespace, id) WHERE substr(run, 7, 1) BETWEEN X'80' AND X'8f';

CREATE TABLE version (
  branch INTEGER NOT NULL,         -- branch.id
  ordinal INTEGER NOT NULL,        -- ordinal of the checkpoint
  key INTEGER NOT NULL,            -- name.id of the channel (kind 0-2) or node (kind 3); 0 for kinds 4 and 5
  version INTEGER NOT NULL,        -- version of the channel minus the ordinal; 0 for kinds 3 to 5
  kind INTEGER NOT NULL,           -- 0 empty, 1 value, 2 list, 3 versions a node has seen, 4 anchor, 5 no changes; plus, on the row
                                   -- with the greatest key of a checkpoint, 16 * (seq of the checkpoint minus ordinal minus 1)
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

CREATE INDEX payload_item ON payload (substr(item_id, -4)) WHERE item_id IS NOT NULL;

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
  task ANY NOT NULL,               -- INTEGER: position in the tasks of the checkpoint, -1 the null task; BLOB: id of a task not among them
  idx INTEGER NOT NULL,            -- position of the write in the task; negative for special slots, which are replaced
  part INTEGER NOT NULL,           -- 0 null or one value; 1, 2, ... items of a list; 1 with a NULL value: an empty list; -1 before the items of a delta
  channel INTEGER NOT NULL,        -- name.id
  value ANY,                       -- payload.id or inline value, NULL for null
  child INTEGER,                   -- seq of the checkpoint that consumed and stored it, minus checkpoint; NULL if it was stored on its own
  path ANY,                        -- on the first row of a run: path of the task, TEXT or name.id + 2^24 * (number in it); NULL if it is the one derived from the prepared task
  sum ANY,                         -- on the first row of a run: its sum and length, or its check if child is set
  mark INTEGER,                    -- on the first row of a special slot: -1 failed, -2 given up, -3 waits, a moment at which the task wakes, -16 - moment if it waits until then; NULL if it says nothing of the status
  PRIMARY KEY (checkpoint, task, idx, part)
) STRICT, WITHOUT ROWID;

CREATE TABLE timer (
  namespace INTEGER NOT NULL,      -- namespace.id of the checkpoint
  task BLOB NOT NULL,              -- id of the task that sleeps, 16 bytes
  checkpoint INTEGER NOT NULL,     -- checkpoint.seq whose task it is
  wake_at INTEGER NOT NULL,        -- moment from which on it can go on, microseconds since 1970-01-01T00:00:00Z
  xxh3 INTEGER NOT NULL,           -- XXH3-64 over thread, path, id of the checkpoint, task and moment
  PRIMARY KEY (namespace, task)
) STRICT, WITHOUT ROWID;

CREATE INDEX timer_wake ON timer (wake_at);

CREATE TABLE lease (
  thread INTEGER PRIMARY KEY,      -- thread.id
  epoch INTEGER NOT NULL,          -- number of the claim, from 1 on; the row stays after a release, so that none is used twice
  owner BLOB NOT NULL,             -- id of the owner, 16 random bytes
  process TEXT NOT NULL,           -- its process: number, start in clock ticks since the boot, hash of the machine; 0 for unknown
  expires_at INTEGER,              -- moment from which on others may claim it, microseconds since 1970-01-01T00:00:00Z; NULL: released
  recoveries INTEGER NOT NULL,     -- number of claims up to this one that each followed a lease that was not released
  xxh3 INTEGER NOT NULL            -- check of the row
) STRICT;

CREATE TABLE lease_group (
  thread INTEGER NOT NULL,         -- thread.id whose last claim entered the group
  grp INTEGER NOT NULL,            -- hash of the name of the group
  rated_until INTEGER,             -- moment until which the claim counts for the rate of the group; NULL without a rate
  PRIMARY KEY (thread, grp)
) STRICT, WITHOUT ROWID;

CREATE INDEX lease_group_members ON lease_group (grp);

CREATE TABLE thread_state (
  thread INTEGER PRIMARY KEY,      -- thread.id; 0 in the row of the mark
  newest INTEGER NOT NULL,         -- greatest checkpoint.seq of its root namespace; of the mark: the last checkpoint.seq that the table follows
  status INTEGER,                  -- 0 done, 1 running, 2 interrupted, 3 failed, 4 sleeping, 5 cancelled, 6 stuck; NULL of the mark, or if rows are damaged
  facets BLOB NOT NULL,            -- thread_facet.facet of its rows there, ascending, 8 bytes each, lowest byte first
  counts ANY,                      -- TEXT: messages, input tokens, output tokens and cost as a JSON list; BLOB: the same, sealed; NULL if not counted
  xxh3 INTEGER NOT NULL            -- check of the row
) STRICT;

CREATE TABLE thread_facet (
  facet INTEGER NOT NULL,          -- hash of a filter of listings: status, project, label, graph, pin, or none
  newest INTEGER NOT NULL,         -- thread_state.newest
  thread INTEGER NOT NULL,         -- thread.id
  PRIMARY KEY (facet, newest)
) STRICT, WITHOUT ROWID;

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

CREATE INDEX operation_change_trash ON operation_change (namespace, operation) WHERE kind = 3 AND key = 'trashed';

CREATE TABLE tombstone (
  thread INTEGER PRIMARY KEY,      -- thread.id of a deleted thread, whose row of thread is gone; 0 within an erasure
  state INTEGER NOT NULL           -- 0 other rows of it are still stored, 1 only the log beside the file may hold them, 2 an erasure
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

CREATE TRIGGER name_no_delete BEFORE DELETE ON name WHEN NOT EXISTS (SELECT 1 FROM tombstone WHERE thread = 0)
BEGIN SELECT RAISE(ABORT, 'annals: name is append-only'); END;

CREATE TRIGGER thread_no_update BEFORE UPDATE ON thread
BEGIN SELECT RAISE(ABORT, 'annals: thread is append-only'); END;

CREATE TRIGGER thread_no_delete BEFORE DELETE ON thread WHEN NOT EXISTS (SELECT 1 FROM tombstone WHERE thread = 0)
BEGIN SELECT RAISE(ABORT, 'annals: thread is append-only'); END;

CREATE TRIGGER namespace_no_update BEFORE UPDATE ON namespace
BEGIN SELECT RAISE(ABORT, 'annals: namespace is append-only'); END;

CREATE TRIGGER namespace_no_delete BEFORE DELETE ON namespace WHEN NOT EXISTS (SELECT 1 FROM tombstone WHERE thread = 0)
BEGIN SELECT RAISE(ABORT, 'annals: namespace is append-only'); END;

CREATE TRIGGER branch_no_update BEFORE UPDATE ON branch
BEGIN SELECT RAISE(ABORT, 'annals: branch is append-only'); END;

CREATE TRIGGER branch_no_delete BEFORE DELETE ON branch WHEN NOT EXISTS (SELECT 1 FROM tombstone WHERE thread = 0)
BEGIN SELECT RAISE(ABORT, 'annals: branch is append-only'); END;

CREATE TRIGGER checkpoint_no_update BEFORE UPDATE ON checkpoint
BEGIN SELECT RAISE(ABORT, 'annals: checkpoint is append-only'); END;

CREATE TRIGGER checkpoint_no_delete BEFORE DELETE ON checkpoint WHEN NOT EXISTS (SELECT 1 FROM tombstone WHERE thread = 0)
BEGIN SELECT RAISE(ABORT, 'annals: checkpoint is append-only'); END;

CREATE TRIGGER version_no_update BEFORE UPDATE ON version
BEGIN SELECT RAISE(ABORT, 'annals: version is append-only'); END;

CREATE TRIGGER version_no_delete BEFORE DELETE ON version WHEN NOT EXISTS (SELECT 1 FROM tombstone WHERE thread = 0)
BEGIN SELECT RAISE(ABORT, 'annals: version is append-only'); END;

CREATE TRIGGER payload_no_update BEFORE UPDATE ON payload
BEGIN SELECT RAISE(ABORT, 'annals: payload is append-only'); END;

CREATE TRIGGER payload_no_delete BEFORE DELETE ON payload WHEN NOT EXISTS (SELECT 1 FROM tombstone WHERE thread = 0)
BEGIN SELECT RAISE(ABORT, 'annals: payload is append-only'); END;

CREATE TRIGGER blob_no_update BEFORE UPDATE ON blob
BEGIN SELECT RAISE(ABORT, 'annals: blob is append-only'); END;

CREATE TRIGGER blob_no_delete BEFORE DELETE ON blob WHEN NOT EXISTS (SELECT 1 FROM tombstone WHERE thread = 0)
BEGIN SELECT RAISE(ABORT, 'annals: blob is append-only'); END;

CREATE TRIGGER item_no_update BEFORE UPDATE ON item
BEGIN SELECT RAISE(ABORT, 'annals: item is append-only'); END;

CREATE TRIGGER item_no_delete BEFORE DELETE ON item WHEN NOT EXISTS (SELECT 1 FROM tombstone WHERE thread = 0)
BEGIN SELECT RAISE(ABORT, 'annals: item is append-only'); END;

CREATE TRIGGER write_no_update BEFORE UPDATE ON write
BEGIN SELECT RAISE(ABORT, 'annals: write is append-only'); END;

CREATE TRIGGER write_no_delete BEFORE DELETE ON write WHEN OLD.idx >= 0 AND NOT EXISTS (SELECT 1 FROM tombstone WHERE thread = 0)
BEGIN SELECT RAISE(ABORT, 'annals: write is append-only, but for the special slots'); END;

CREATE TRIGGER operation_no_update BEFORE UPDATE ON operation
BEGIN SELECT RAISE(ABORT, 'annals: operation is append-only'); END;

CREATE TRIGGER operation_no_delete BEFORE DELETE ON operation WHEN NOT EXISTS (SELECT 1 FROM tombstone WHERE thread = 0)
BEGIN SELECT RAISE(ABORT, 'annals: operation is append-only'); END;

CREATE TRIGGER operation_change_no_update BEFORE UPDATE ON operation_change
BEGIN SELECT RAISE(ABORT, 'annals: operation_change is append-only'); END;

CREATE TRIGGER operation_change_no_delete BEFORE DELETE ON operation_change WHEN NOT EXISTS (SELECT 1 FROM tombstone WHERE thread = 0)
BEGIN SELECT RAISE(ABORT, 'annals: operation_change is append-only'); END;

CREATE VIEW v_heads (thread, namespace, seq, newest) AS
SELECT t.public_id, n.path, (SELECT CASE WHEN moved.newest = top.seq THEN moved.after ELSE top.seq END
    FROM (SELECT k.seq FROM checkpoint k WHERE k.namespace = n.id ORDER BY k.prefix DESC, k.seq DESC LIMIT 1) top
    LEFT JOIN (SELECT m.newest, m.after FROM operation_change m WHERE m.namespace = n.id AND m.kind = 0 AND m.key = ''
      ORDER BY m.operation DESC LIMIT 1) moved ON true),
  (SELECT k.seq FROM checkpoint k WHERE k.namespace = n.id ORDER BY k.prefix DESC, k.seq DESC LIMIT 1)
FROM thread t JOIN namespace n ON n.thread = t.id;

CREATE VIEW v_facts (thread, fact, value) AS
SELECT t.public_id, c.key, CASE typeof(c.after) WHEN 'text' THEN c.after ELSE 'sealed' END
FROM thread t JOIN namespace n ON n.thread = t.id AND n.path = '' JOIN operation_change c ON c.namespace = n.id
WHERE c.kind = 3 AND c.after IS NOT NULL AND c.operation = (SELECT max(o.operation) FROM operation_change o
  WHERE o.namespace = c.namespace AND o.kind = 3 AND o.key = c.key);

CREATE VIEW v_threads (thread, created_at, updated_at, namespaces, branches, checkpoints, title, project, labels, archived,
  pinned, graph) AS
SELECT t.public_id, strftime('%Y-%m-%dT%H:%M:%S', t.created_at / 1000000, 'unixepoch') || printf('.%06dZ', t.created_at % 1000000),
  (SELECT c.created_at FROM v_checkpoints c WHERE c.seq = (SELECT k.seq FROM checkpoint k WHERE k.namespace = r.id
    ORDER BY k.prefix DESC, k.seq DESC LIMIT 1)),
  (SELECT count(*) FROM namespace n WHERE n.thread = t.id),
  (SELECT count(*) FROM namespace n JOIN branch b ON b.namespace = n.id WHERE n.thread = t.id),
  (SELECT count(*) FROM namespace n JOIN checkpoint c ON c.namespace = n.id WHERE n.thread = t.id),
  (SELECT f.value FROM v_facts f WHERE f.thread = t.public_id AND f.fact = 'title'),
  (SELECT f.value FROM v_facts f WHERE f.thread = t.public_id AND f.fact = 'project'),
  (SELECT f.value FROM v_facts f WHERE f.thread = t.public_id AND f.fact = 'labels'),
  EXISTS (SELECT 1 FROM v_facts f WHERE f.thread = t.public_id AND f.fact = 'archived'),
  EXISTS (SELECT 1 FROM v_facts f WHERE f.thread = t.public_id AND f.fact = 'pinned'),
  (SELECT CASE WHEN json_valid(c.metadata) THEN c.metadata ->> '$.graph' END FROM v_heads h JOIN checkpoint c ON c.seq = h.seq
    WHERE h.thread = t.public_id AND h.namespace = '')
FROM thread t LEFT JOIN namespace r ON r.thread = t.id AND r.path = '';

CREATE VIEW v_checkpoints (seq, thread, namespace, checkpoint, parent, branch, ordinal, step, source, created_at, run,
  app_version, nodes, metadata, sum, is_head) AS
SELECT c.seq, t.public_id, n.path, c.id, (SELECT p.id FROM checkpoint p WHERE p.seq = c.seq - c.parent), c.branch, c.ordinal,
  c.ordinal - c.step, CASE c.source & 3 WHEN 0 THEN 'input' WHEN 1 THEN 'loop' WHEN 2 THEN 'update' WHEN 3 THEN 'fork' END,
  strftime('%Y-%m-%dT%H:%M:%S', (c.created_at + coalesce(r.created_at, 0)) / 1000000, 'unixepoch')
    || printf('.%06dZ', (c.created_at + coalesce(r.created_at, 0)) % 1000000),
  CASE typeof(c.run) WHEN 'integer' THEN r.run ELSE c.run END, c.app_version,
  (SELECT json_group_array(f.text) FROM version v JOIN name f ON f.id = v.key
    WHERE v.branch = c.branch AND v.ordinal = c.ordinal AND v.kind & 15 = 3),
  c.metadata, c.sum, c.seq IS (SELECT h.seq FROM v_heads h WHERE h.thread = t.public_id AND h.namespace = n.path)
FROM checkpoint c JOIN namespace n ON n.id = c.namespace JOIN thread t ON t.id = n.thread
  LEFT JOIN checkpoint r ON r.seq = iif(typeof(c.run) = 'integer', c.seq - c.run, NULL);

CREATE VIEW v_messages (thread, namespace, branch, channel, slot, ordinal, seq, created_at, id, kind, name, text, tool_calls,
  input_tokens, output_tokens, payload) AS
SELECT t.public_id, n.path, i.branch, ch.text, i.slot, i.ordinal, c.seq,
  strftime('%Y-%m-%dT%H:%M:%S', (c.created_at + coalesce(r.created_at, 0)) / 1000000, 'unixepoch')
    || printf('.%06dZ', (c.created_at + coalesce(r.created_at, 0)) % 1000000),
  p.item_id, p.kind, p.name,
  CASE typeof(p.text) WHEN 'integer' THEN (SELECT CAST(b.data AS TEXT) FROM blob b WHERE b.id = p.text) ELSE p.text END,
  p.tool_calls, p.input_tokens, p.output_tokens, p.id
FROM item i JOIN branch br ON br.id = i.branch JOIN namespace n ON n.id = br.namespace
  JOIN thread t ON t.id = n.thread JOIN name ch ON ch.id = i.channel JOIN payload p ON p.id = i.value
  LEFT JOIN checkpoint c ON c.seq = (SELECT v.ordinal + 1 + (v.kind >> 4) FROM version v
    WHERE v.branch = i.branch AND v.ordinal = i.ordinal ORDER BY v.key DESC LIMIT 1)
  LEFT JOIN checkpoint r ON r.seq = iif(typeof(c.run) = 'integer', c.seq - c.run, NULL)
WHERE i.op = 1 AND p.kind IS NOT NULL;

CREATE VIEW v_writes (thread, namespace, seq, checkpoint, position, task, idx, part, channel, consumed_by, path, payload,
  inline) AS
SELECT t.public_id, n.path, c.seq, c.id, CASE WHEN typeof(w.task) = 'integer' AND w.task >= 0 THEN w.task END,
  CASE WHEN typeof(w.task) = 'blob' THEN w.task WHEN w.task < 0 THEN zeroblob(16) ELSE
    substr(c.tasks, 16 * w.task + iif(substr(c.tasks, 1, 1) < X'80', 2, iif(substr(c.tasks, 2, 1) < X'80', 3, 4)), 16) END,
  w.idx, w.part, ch.text, (SELECT k.id FROM checkpoint k WHERE k.seq = w.checkpoint + w.child),
  CASE typeof(w.path) WHEN 'integer' THEN (SELECT replace(f.text, '#', printf('%010d', w.path >> 24)) FROM name f
    WHERE f.id = w.path & 16777215) ELSE w.path END,
  CASE typeof(w.value) WHEN 'integer' THEN w.value END, CASE typeof(w.value) WHEN 'blob' THEN w.value END
FROM write w JOIN checkpoint c ON c.seq = w.checkpoint JOIN namespace n ON n.id = c.namespace
  JOIN thread t ON t.id = n.thread JOIN name ch ON ch.id = w.channel;

CREATE VIEW v_channel_versions (thread, namespace, branch, ordinal, seq, channel, key, version, kind, task, payload, inline) AS
SELECT t.public_id, n.path, v.branch, v.ordinal,
  (SELECT o.ordinal + 1 + (o.kind >> 4) FROM version o WHERE o.branch = v.branch AND o.ordinal = v.ordinal
    ORDER BY o.key DESC LIMIT 1),
  ch.text, v.key, v.version + v.ordinal, CASE v.kind & 15 WHEN 0 THEN 'empty' WHEN 1 THEN 'value' WHEN 2 THEN 'list' END, v.task,
  CASE typeof(v.value) WHEN 'integer' THEN v.value END, CASE WHEN v.kind & 15 = 1 AND typeof(v.value) = 'blob' THEN v.value END
FROM version v JOIN branch br ON br.id = v.branch JOIN namespace n ON n.id = br.namespace
  JOIN thread t ON t.id = n.thread JOIN name ch ON ch.id = v.key
WHERE v.kind & 15 < 3;

CREATE VIEW v_operations (seq, operation, kind, at, actor, thread, run, checkpoint, changes) AS
SELECT o.seq, o.id,
  CASE o.kind WHEN 0 THEN 'rewind' WHEN 1 THEN 'switch' WHEN 2 THEN 'name branch' WHEN 3 THEN 'facts' WHEN 4 THEN 'undo'
    WHEN 5 THEN 'redo' END,
  strftime('%Y-%m-%dT%H:%M:%S', o.at / 1000000, 'unixepoch') || printf('.%06dZ', o.at % 1000000),
  o.actor, t.public_id, NULL, NULL,
  json_group_array(json_object('field', CASE c.kind WHEN 0 THEN 'head' WHEN 1 THEN 'branch' WHEN 2 THEN 'current branch'
      WHEN 3 THEN 'fact' END, 'name', c.key,
    'before', CASE typeof(c.before) WHEN 'blob' THEN 'sealed' ELSE c.before END,
    'after', CASE typeof(c.after) WHEN 'blob' THEN 'sealed' ELSE c.after END))
FROM operation o JOIN operation_change c ON c.operation = o.id JOIN namespace n ON n.id = c.namespace
  JOIN thread t ON t.id = n.thread
GROUP BY o.id, t.id
UNION ALL
SELECT max(c.seq), NULL, CASE WHEN c.run IS NULL THEN c.source ELSE 'run' END, c.created_at,
  CASE WHEN json_valid(c.metadata) THEN c.metadata ->> '$.actor' END, c.thread, c.run, c.checkpoint, NULL
FROM v_checkpoints c WHERE c.namespace = '' GROUP BY c.thread, coalesce(c.run, c.seq);

CREATE VIEW v_timers (thread, namespace, checkpoint, task, wake_at) AS
SELECT t.public_id, n.path, c.id, r.task,
  strftime('%Y-%m-%dT%H:%M:%S', r.wake_at / 1000000, 'unixepoch') || printf('.%06dZ', r.wake_at % 1000000)
FROM timer r JOIN checkpoint c ON c.seq = r.checkpoint JOIN namespace n ON n.id = r.namespace
  JOIN thread t ON t.id = n.thread;

CREATE VIEW v_kv (namespace, key, created_at, updated_at, expires_at, codec, data) AS
SELECT n.path, k.key,
  strftime('%Y-%m-%dT%H:%M:%S', k.created_at / 1000000, 'unixepoch') || printf('.%06dZ', k.created_at % 1000000),
  strftime('%Y-%m-%dT%H:%M:%S', k.updated_at / 1000000, 'unixepoch') || printf('.%06dZ', k.updated_at % 1000000),
  strftime('%Y-%m-%dT%H:%M:%S', k.expires_at / 1000000, 'unixepoch') || printf('.%06dZ', k.expires_at % 1000000),
  k.codec, k.data
FROM kv k JOIN kv_namespace n ON n.id = k.namespace;
