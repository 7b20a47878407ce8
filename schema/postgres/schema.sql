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
    updated_at bigint,
    status smallint,
    graph text COLLATE "C",
    priority smallint,
    archived boolean NOT NULL,
    trashed_until bigint,
    paused boolean NOT NULL
) WITH (fillfactor = 70);

CREATE INDEX thread_activity ON thread (activity);
CREATE INDEX thread_queue ON thread (graph, priority DESC, activity)
    WHERE status = 1 AND NOT archived AND trashed_until IS NULL;
CREATE INDEX thread_owner ON thread (lease_owner) WHERE lease_until IS NOT NULL;
CREATE INDEX thread_trash ON thread (trashed_until) WHERE trashed_until IS NOT NULL;

CREATE TABLE namespace (
    thread bigint NOT NULL,
    number bigint NOT NULL,
    path text COLLATE "C" NOT NULL,
    -- The newest checkpoint.
    newest bytea NOT NULL,
    newest_branch bigint NOT NULL,
    newest_ordinal bigint NOT NULL,
    -- The head; no columns for a namespace without one.
    head bytea,
    head_branch bigint,
    head_ordinal bigint,
    PRIMARY KEY (thread, number)
) WITH (fillfactor = 70);

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
