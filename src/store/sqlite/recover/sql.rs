//! The statements of a recovery.

/// The tables of a damaged file as a recovery reads them: the columns of the first format that has the table, in their
/// order, which later formats only add to. The schema of the file itself may be damaged.
pub(super) const TABLES: [(&str, &str); 17] = [
    ("name", "CREATE TABLE name (id INTEGER PRIMARY KEY, kind, text)"),
    ("thread", "CREATE TABLE thread (id INTEGER PRIMARY KEY, public_id, created_at)"),
    ("namespace", "CREATE TABLE namespace (id INTEGER PRIMARY KEY, thread, path)"),
    (
        "checkpoint",
        "CREATE TABLE checkpoint (seq INTEGER PRIMARY KEY, namespace, id, parent, branch, ordinal, step, source, \
         created_at, run, metadata, parents, tasks, sum)",
    ),
    (
        "version",
        "CREATE TABLE version (branch, ordinal, key, version, kind, task, value, PRIMARY KEY (branch, ordinal, key)) \
         WITHOUT ROWID",
    ),
    (
        "payload",
        "CREATE TABLE payload (id INTEGER PRIMARY KEY, form, xxh3, data, item_id, kind, text, name, tool_calls, \
         input_tokens, output_tokens)",
    ),
    ("blob", "CREATE TABLE blob (id INTEGER PRIMARY KEY, hash, data)"),
    (
        "item",
        "CREATE TABLE item (branch, channel, slot, ordinal, op, task, value, \
         PRIMARY KEY (branch, channel, slot, ordinal DESC)) WITHOUT ROWID",
    ),
    (
        "write",
        "CREATE TABLE write (checkpoint, task, idx, part, channel, value, child, path, sum, \
         PRIMARY KEY (checkpoint, task, idx, part)) WITHOUT ROWID",
    ),
    (
        "timer",
        "CREATE TABLE timer (namespace, task, checkpoint, wake_at, xxh3, PRIMARY KEY (namespace, task)) WITHOUT ROWID",
    ),
    ("operation", "CREATE TABLE operation (id INTEGER PRIMARY KEY, kind, seq, at, actor, target, changes, xxh3)"),
    (
        "operation_change",
        "CREATE TABLE operation_change (namespace, kind, key, operation, newest, before, after, xxh3, \
         PRIMARY KEY (namespace, kind, key, operation)) WITHOUT ROWID",
    ),
    ("kv_namespace", "CREATE TABLE kv_namespace (id INTEGER PRIMARY KEY, path)"),
    (
        "kv",
        "CREATE TABLE kv (id INTEGER PRIMARY KEY, namespace, key, created_at, updated_at, expires_at, xxh3, codec, data)",
    ),
    (
        "kv_vector",
        "CREATE TABLE kv_vector (entry, position, field, dims, data, xxh3, PRIMARY KEY (entry, position)) WITHOUT ROWID",
    ),
    ("kv_lifetime", "CREATE TABLE kv_lifetime (entry INTEGER PRIMARY KEY, lifetime, xxh3)"),
    ("store_key", "CREATE TABLE store_key (id INTEGER PRIMARY KEY, cipher, caller, file, sealed)"),
];

/// Lets a schema be read that does not parse, and be written.
pub(super) const WRITABLE_SCHEMA: &str = "PRAGMA writable_schema = ON";
/// Returns 1 if a checkpoint was pruned.
pub(super) const HAS_PRUNED: &str = "SELECT EXISTS (SELECT 1 FROM checkpoint WHERE source < 0)";
pub(super) const FOLD_LOG: &str = "PRAGMA wal_checkpoint(TRUNCATE)";
pub(super) const ROOTS: &str = "SELECT name, rootpage FROM sqlite_schema WHERE type = 'table'";
pub(super) const SCHEMA_ROW: &str =
    "INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql) VALUES ('table', ?1, ?1, ?2, ?3)";
/// Nothing is synced: the file is a scratch one, which does not outlive the call.
pub(super) const SCRATCH_FILE: &str =
    "PRAGMA page_size = 4096; PRAGMA auto_vacuum = NONE; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;";
pub(super) const READ_STRICTLY: &str = "PRAGMA query_only = ON; PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0;";

pub(super) const THREADS_FROM: &str = "SELECT id, public_id FROM thread WHERE id >= ?1 ORDER BY id LIMIT ?2";
pub(super) const ENTRIES_FROM: &str = "SELECT k.id, n.path, k.key, k.created_at, k.updated_at, k.expires_at, k.xxh3, \
     k.codec, k.data FROM kv k LEFT JOIN kv_namespace n ON n.id = k.namespace WHERE k.id >= ?1 ORDER BY k.id LIMIT ?2";
/// Returns 1 if a thread is in the new store.
pub(super) const HAS_THREAD: &str = "SELECT EXISTS (SELECT 1 FROM thread WHERE public_id = ?1)";
