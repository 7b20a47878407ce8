-- The schema of a store on a PostgreSQL server, version 1.
--
-- All objects stand in one schema of the database, the first of the search path. A commit locks the row of its thread
-- and compares its number of changes; everything else that it compares was read at that number. The rows of the log
-- are never updated but by pruning. Values are bytes in the encoding of the file; texts are in the order of their bytes.

CREATE TABLE annals_schema (
    version bigint NOT NULL,
    -- The identifier of the server that wrote the numbers of transactions in the log.
    system bigint NOT NULL
);

CREATE TABLE thread (
    number bigint PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    -- The number of the last change; it ascends with each commit.
    change bigint NOT NULL,
    -- The mark of the statement that made the last change.
    token bigint NOT NULL,
    created_at bigint NOT NULL,
    -- The position of the newest checkpoint, and the number of the newest operation.
    seq bigint NOT NULL,
    operation bigint NOT NULL,
    -- The number of namespaces so far.
    namespaces bigint NOT NULL,
    -- The fields that operations set.
    fields bytea,
    lease_owner bytea,
    lease_process text,
    lease_epoch bigint,
    lease_until bigint,
    lease_recoveries bigint,
    -- Derived from the head of the root namespace, for listings.
    activity bigint,
    -- The minute of the activity, and its second while a run is due. Indexes have these, which the supersteps of a run
    -- mostly leave as they are: an update of a row without a change of an indexed column adds no index entry.
    listed bigint,
    queued bigint,
    updated_at bigint,
    status smallint,
    graph text COLLATE "C",
    priority smallint,
    archived boolean NOT NULL,
    trashed_until bigint,
    paused boolean NOT NULL
) WITH (fillfactor = 70);

CREATE INDEX thread_listed ON thread (listed);
CREATE INDEX thread_queue ON thread (graph, priority DESC, queued) WHERE queued IS NOT NULL;
CREATE INDEX thread_owner ON thread (lease_owner) WHERE lease_owner IS NOT NULL;
CREATE INDEX thread_trash ON thread (trashed_until) WHERE trashed_until IS NOT NULL;

CREATE TABLE namespace (
    thread bigint NOT NULL,
    number bigint NOT NULL,
    path text COLLATE "C" NOT NULL,
    -- The head is the newest checkpoint up to this id; NULL for a namespace without a head. The greatest id stands for the
    -- newest checkpoint of all, so that a commit, whose checkpoint is the head and the newest, leaves the row as it is.
    head bytea,
    PRIMARY KEY (thread, number)
);

CREATE UNIQUE INDEX namespace_path ON namespace (thread, path);

CREATE TABLE branch (
    thread bigint NOT NULL,
    branch bigint NOT NULL,
    namespace bigint NOT NULL,
    -- The ordinal of its first checkpoint, which is one above that of the parent.
    first bigint NOT NULL,
    parent_thread bigint,
    parent_branch bigint,
    PRIMARY KEY (thread, branch)
);

CREATE INDEX branch_parent ON branch (parent_thread, parent_branch, first) WHERE parent_thread IS NOT NULL;

-- The columns of fixed width come first, so that a row has no gaps.
CREATE TABLE checkpoint (
    thread bigint NOT NULL,
    branch bigint NOT NULL,
    ordinal bigint NOT NULL,
    namespace bigint NOT NULL,
    -- The position of followers: the transaction, then `seq`, which ascends in a thread.
    xact xid8 NOT NULL DEFAULT pg_current_xact_id(),
    seq bigint NOT NULL,
    created_at bigint NOT NULL,
    step bigint NOT NULL,
    source smallint NOT NULL,
    pruned boolean NOT NULL,
    id bytea NOT NULL,
    -- The checksum of its content and of the checksum of its parent.
    checksum bytea NOT NULL,
    parent bytea,
    run bytea,
    forked_from bytea,
    app_version text,
    metadata text,
    -- The two texts before it, if one of them holds a NUL character, which a text cannot have.
    exact bytea,
    parents bytea,
    tasks bytea,
    -- The channels that it changed, and the changes: the first byte has the kind in its lowest two bits (0 is empty, 1 a
    -- value, 2 a list), and above them the length of the version, which follows with its highest byte first. NULL
    -- stands for an empty array.
    channels text[],
    contents bytea[],
    seen bytea,
    -- The writes of the tasks of the parent that it brought, and the positions of the items that stand for them.
    consumed bytea,
    consumed_items bigint[],
    -- The index snapshot: where each channel of the state was written last, and the nodes that ran.
    snapshot bytea,
    PRIMARY KEY (thread, branch, ordinal)
);

CREATE UNIQUE INDEX checkpoint_id ON checkpoint (thread, namespace, id);
CREATE INDEX checkpoint_follow ON checkpoint (xact, seq);
-- The runs whose ids were made of keys: UUIDs of version 8.
CREATE INDEX checkpoint_run ON checkpoint (thread, namespace, run, id) WHERE get_byte(run, 6) / 16 = 8;

CREATE TABLE item (
    thread bigint NOT NULL,
    branch bigint NOT NULL,
    position bigint NOT NULL,
    ordinal bigint NOT NULL,
    task bigint,
    input_tokens bigint,
    output_tokens bigint,
    -- The codec, and 256 more for an item with an index; NULL for a deletion.
    codec smallint,
    channel text COLLATE "C" NOT NULL,
    data bytea,
    item_id text COLLATE "C",
    kind text,
    name text,
    tool_calls text,
    body text,
    -- The texts of the index, if one of them holds a NUL character.
    exact bytea,
    PRIMARY KEY (thread, branch, channel, position, ordinal)
);

-- The end of an id tells it from the others of a thread in a third of the bytes.
CREATE INDEX item_by_id ON item (thread, right(item_id, 6)) WHERE item_id IS NOT NULL;

-- Deletions of the positions of a list from one to another, both included, before the other changes of the checkpoint.
-- With a reference, the list begins as another one.
CREATE TABLE range_delete (
    thread bigint NOT NULL,
    branch bigint NOT NULL,
    channel text COLLATE "C" NOT NULL,
    ordinal bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    task bigint,
    reference bytea,
    PRIMARY KEY (thread, branch, channel, ordinal, first)
);

-- The writes of tasks that no checkpoint brought.
CREATE TABLE task_write (
    thread bigint NOT NULL,
    branch bigint NOT NULL,
    ordinal bigint NOT NULL,
    task bytea NOT NULL,
    position bigint NOT NULL,
    -- The change of the thread that wrote it.
    change bigint NOT NULL,
    channel text NOT NULL,
    mark bigint,
    value bytea NOT NULL,
    PRIMARY KEY (thread, branch, ordinal, task, position)
);

CREATE TABLE timer (
    thread bigint NOT NULL,
    namespace bigint NOT NULL,
    task bytea NOT NULL,
    checkpoint bytea NOT NULL,
    wake_at bigint NOT NULL,
    PRIMARY KEY (thread, namespace, task)
);

CREATE INDEX timer_wake_at ON timer (wake_at);

CREATE TABLE operation (
    number bigint PRIMARY KEY,
    seq bigint NOT NULL,
    content bytea NOT NULL
);

CREATE TABLE operation_change (
    thread bigint NOT NULL,
    operation bigint NOT NULL,
    -- The namespace and the field.
    field bytea NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (thread, operation, field)
);

CREATE INDEX operation_change_operation ON operation_change (operation);
CREATE INDEX operation_change_field ON operation_change (thread, field, operation);

CREATE TABLE lease_group (
    thread bigint NOT NULL,
    name bytea NOT NULL,
    rated_until bigint,
    is_current boolean NOT NULL,
    PRIMARY KEY (thread, name)
);

CREATE INDEX lease_group_name ON lease_group (name);

-- The rows that claims lock, so that the members of a group are counted one claim after another.
CREATE TABLE lease_group_lock (
    name bytea PRIMARY KEY
);

-- The index of texts: the position up to which checkpoints are indexed. Without a row there is no index.
CREATE TABLE search_mark (
    one boolean PRIMARY KEY,
    xact xid8 NOT NULL,
    seq bigint NOT NULL
);

-- The grams of the texts that a checkpoint put, ascending.
CREATE TABLE search_entry (
    thread bigint NOT NULL,
    branch bigint NOT NULL,
    ordinal bigint NOT NULL,
    grams integer[] NOT NULL,
    PRIMARY KEY (thread, branch, ordinal)
);

CREATE INDEX search_grams ON search_entry USING gin (grams);

-- The order of namespaces and keys is that of the first puts.
CREATE SEQUENCE kv_order;

CREATE TABLE kv_namespace (
    number bigint PRIMARY KEY DEFAULT nextval('kv_order'),
    path text COLLATE "C" NOT NULL UNIQUE,
    -- Its place in the order: a namespace without entries comes last with its next one.
    place bigint NOT NULL DEFAULT nextval('kv_order')
);

CREATE TABLE kv_entry (
    number bigint PRIMARY KEY DEFAULT nextval('kv_order'),
    namespace bigint NOT NULL,
    key bytea NOT NULL,
    codec smallint NOT NULL,
    value bytea NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    expires_at bigint,
    lifetime bigint,
    vectors bytea,
    UNIQUE (namespace, key)
);

CREATE INDEX kv_expires_at ON kv_entry (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE cache_entry (
    namespace bytea NOT NULL,
    key bytea NOT NULL,
    codec smallint NOT NULL,
    value bytea NOT NULL,
    expires_at bigint,
    PRIMARY KEY (namespace, key)
);

CREATE INDEX cache_expires_at ON cache_entry (expires_at) WHERE expires_at IS NOT NULL;

-- The views of a file, as far as SQL can show them. Ids are of the type uuid, timestamps in ISO 8601, values in MessagePack.

CREATE VIEW v_heads (thread, namespace, seq, newest) AS
SELECT t.id, n.path, h.seq, w.seq
FROM thread t JOIN namespace n ON n.thread = t.number
    CROSS JOIN LATERAL (SELECT c.seq FROM checkpoint c WHERE c.thread = n.thread AND c.namespace = n.number
        ORDER BY c.id DESC LIMIT 1) w
    LEFT JOIN LATERAL (SELECT c.seq FROM checkpoint c WHERE c.thread = n.thread AND c.namespace = n.number
        AND c.id <= n.head ORDER BY c.id DESC LIMIT 1) h ON true;

-- The newest change of each fact. Its content is the value before and the value after: byte 0 for none, or byte 2, the
-- length in groups of seven bits, the lowest first, and the text.
CREATE VIEW v_facts (thread, fact, value) AS
SELECT t.id, convert_from(substr(c.field, CASE WHEN get_byte(c.field, 2) < 128 THEN 4 ELSE 5 END), 'UTF8'),
    CASE WHEN position('\x00'::bytea IN x.after) = 0 THEN convert_from(x.after, 'UTF8') ELSE encode(x.after, 'escape') END
FROM (SELECT DISTINCT ON (o.thread, o.field) o.thread, o.field, o.content FROM operation_change o
        WHERE substr(o.field, 1, 2) = '\x0003'::bytea ORDER BY o.thread, o.field, o.operation DESC) c
    JOIN thread t ON t.number = c.thread
    CROSS JOIN LATERAL (SELECT CASE
        WHEN get_byte(c.content, 0) = 0 THEN 1
        WHEN get_byte(c.content, 1) < 128 THEN 2 + get_byte(c.content, 1)
        WHEN get_byte(c.content, 2) < 128 THEN 3 + get_byte(c.content, 1) % 128 + get_byte(c.content, 2) * 128
        WHEN get_byte(c.content, 3) < 128 THEN 4 + get_byte(c.content, 1) % 128 + get_byte(c.content, 2) % 128 * 128
            + get_byte(c.content, 3) * 16384
        ELSE 5 + get_byte(c.content, 1) % 128 + get_byte(c.content, 2) % 128 * 128
            + get_byte(c.content, 3) % 128 * 16384 + get_byte(c.content, 4) * 2097152 END AS tag) a
    CROSS JOIN LATERAL (SELECT CASE WHEN get_byte(c.content, a.tag) = 0 THEN NULL
        WHEN get_byte(c.content, a.tag + 1) < 128 THEN substr(c.content, a.tag + 3)
        WHEN get_byte(c.content, a.tag + 2) < 128 THEN substr(c.content, a.tag + 4)
        WHEN get_byte(c.content, a.tag + 3) < 128 THEN substr(c.content, a.tag + 5)
        ELSE substr(c.content, a.tag + 6) END AS after) x
WHERE x.after IS NOT NULL;

CREATE VIEW v_threads (thread, created_at, updated_at, namespaces, branches, checkpoints, title, project, labels, archived,
    pinned, graph) AS
SELECT t.id,
    to_char(timestamp 'epoch' + t.created_at * interval '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    to_char(timestamp 'epoch' + t.updated_at * interval '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    (SELECT count(*) FROM namespace n WHERE n.thread = t.number),
    (SELECT count(*) FROM branch b WHERE b.thread = t.number),
    (SELECT count(*) FROM checkpoint c WHERE c.thread = t.number),
    (SELECT f.value FROM v_facts f WHERE f.thread = t.id AND f.fact = 'title'),
    (SELECT f.value FROM v_facts f WHERE f.thread = t.id AND f.fact = 'project'),
    (SELECT f.value FROM v_facts f WHERE f.thread = t.id AND f.fact = 'labels'),
    t.archived::integer,
    EXISTS (SELECT FROM v_facts f WHERE f.thread = t.id AND f.fact = 'pinned')::integer,
    t.graph
FROM thread t;

CREATE VIEW v_checkpoints (seq, thread, namespace, checkpoint, parent, branch, ordinal, step, source, created_at, run,
    app_version, metadata, sum, is_head) AS
SELECT c.seq, t.id, n.path, encode(c.id, 'hex')::uuid, encode(c.parent, 'hex')::uuid, c.branch, c.ordinal, c.step,
    CASE c.source WHEN 0 THEN 'input' WHEN 1 THEN 'loop' WHEN 2 THEN 'update' WHEN 3 THEN 'fork' END,
    to_char(timestamp 'epoch' + c.created_at * interval '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    encode(c.run, 'hex')::uuid, c.app_version, c.metadata, c.checksum,
    (h.id IS NOT DISTINCT FROM c.id)::integer
FROM checkpoint c JOIN thread t ON t.number = c.thread
    JOIN namespace n ON n.thread = c.thread AND n.number = c.namespace
    LEFT JOIN LATERAL (SELECT x.id FROM checkpoint x WHERE x.thread = n.thread AND x.namespace = n.number
        AND x.id <= n.head ORDER BY x.id DESC LIMIT 1) h ON true;

CREATE VIEW v_messages (thread, namespace, branch, channel, slot, ordinal, seq, created_at, id, kind, name, text, tool_calls,
    input_tokens, output_tokens) AS
SELECT t.id, n.path, i.branch, i.channel, i.position, i.ordinal, c.seq,
    to_char(timestamp 'epoch' + c.created_at * interval '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    i.item_id, i.kind, i.name, i.body, i.tool_calls, i.input_tokens, i.output_tokens
FROM item i JOIN checkpoint c ON c.thread = i.thread AND c.branch = i.branch AND c.ordinal = i.ordinal
    JOIN thread t ON t.number = i.thread
    JOIN namespace n ON n.thread = c.thread AND n.number = c.namespace
WHERE i.kind IS NOT NULL;

CREATE VIEW v_channel_versions (thread, namespace, branch, ordinal, seq, channel, version, kind) AS
SELECT t.id, n.path, c.branch, c.ordinal, c.seq, x.channel,
    ('x' || lpad(encode(substr(x.change, 2, get_byte(x.change, 0) / 4), 'hex'), 16, '0'))::bit(64)::bigint,
    CASE get_byte(x.change, 0) % 4 WHEN 0 THEN 'empty' WHEN 1 THEN 'value' WHEN 2 THEN 'list' END
FROM checkpoint c CROSS JOIN LATERAL unnest(c.channels, c.contents) AS x (channel, change)
    JOIN thread t ON t.number = c.thread
    JOIN namespace n ON n.thread = c.thread AND n.number = c.namespace;

CREATE VIEW v_timers (thread, namespace, checkpoint, task, wake_at) AS
SELECT t.id, n.path, encode(x.checkpoint, 'hex')::uuid, encode(x.task, 'hex')::uuid,
    to_char(timestamp 'epoch' + x.wake_at * interval '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
FROM timer x JOIN thread t ON t.number = x.thread
    JOIN namespace n ON n.thread = x.thread AND n.number = x.namespace;

CREATE VIEW v_kv (namespace, key, created_at, updated_at, expires_at, codec, data) AS
SELECT n.path, convert_from(k.key, 'UTF8'),
    to_char(timestamp 'epoch' + k.created_at * interval '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    to_char(timestamp 'epoch' + k.updated_at * interval '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    to_char(timestamp 'epoch' + k.expires_at * interval '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    k.codec, k.value
FROM kv_entry k JOIN kv_namespace n ON n.number = k.namespace;
