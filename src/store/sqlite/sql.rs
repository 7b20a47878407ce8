//! All SQL of the library. Values are always bound; no text is ever spliced in.

/// Marks the file as a store of annals: `annl` in ASCII, in the application id of the SQLite header.
pub(super) const APPLICATION_ID: i64 = 0x616e_6e6c;
/// The format that this version writes, in the user version of the SQLite header.
pub(super) const FORMAT: i64 = 1;
/// The page size of a new file. It must be set before the switch to WAL or it is ignored.
pub(super) const PAGE_BYTES: u64 = 4_096;

/// Steps that bring a file to the next format; the first makes it.
pub(super) const MIGRATIONS: [&str; 1] = [include_str!("../../../schema/sqlite/0001_init.sql")];

/// Marks a file of the given step; the numbers are those of [`APPLICATION_ID`] and [`FORMAT`].
pub(super) const MARK: &str = "PRAGMA application_id = 1634627180; PRAGMA user_version = 1;";
pub(super) const SET_PAGE_BYTES: &str = "PRAGMA page_size = 4096;";
pub(super) const SET_WAL: &str = "PRAGMA journal_mode = WAL";
pub(super) const JOURNAL_MODE: &str = "PRAGMA journal_mode";
/// By pragmas: a table of the file may have the name of a pragma's table-valued function, and would be read in its place.
pub(super) const READ_APPLICATION_ID: &str = "PRAGMA application_id";
pub(super) const READ_FORMAT: &str = "PRAGMA user_version";
pub(super) const HAS_OBJECTS: &str = "SELECT EXISTS (SELECT 1 FROM sqlite_schema)";
/// The objects of the schema and whether each has a page of its own.
pub(super) const SCHEMA_OBJECTS: &str =
    "SELECT type, name, tbl_name, sql, coalesce(rootpage, 0) > 0 FROM sqlite_schema";
pub(super) const SCHEMA_VERSION: &str = "PRAGMA schema_version";
/// Automatic WAL checkpoints swallow errors and were half the cost of a commit: they are run explicitly.
pub(super) const CONFIGURE: &str =
    "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA wal_autocheckpoint = 0; PRAGMA temp_store = 2;";
pub(super) const SYNC_FULL: &str = "PRAGMA synchronous = FULL";
pub(super) const SYNC_NORMAL: &str = "PRAGMA synchronous = NORMAL";
/// On macOS, an fsync flushes the drive's own cache only on request; elsewhere these change nothing.
pub(super) const FULL_FSYNC: &str = "PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;";
pub(super) const PLAIN_FSYNC: &str = "PRAGMA fullfsync = OFF; PRAGMA checkpoint_fullfsync = OFF;";
/// The page cache of a reader has 1 MiB: a commit empties it, and a state is read page after page. With 8 MiB a whole
/// state of 10,000 messages took a fifth longer, which was spent on allocating pages.
pub(super) const READER: &str = "PRAGMA query_only = ON; PRAGMA cache_size = -1024;";
pub(super) const WAL_PASSIVE: &str = "PRAGMA wal_checkpoint(PASSIVE)";
/// Copies nothing and reports the numbers; an older SQLite takes an unknown word for `PASSIVE`.
pub(super) const WAL_NOOP: &str = "PRAGMA wal_checkpoint(NOOP)";
pub(super) const WAL_TRUNCATE: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

/// Writes what one snapshot holds to a new file, or to an empty one.
pub(super) const COPY_INTO: &str = "VACUUM main INTO ?1";

pub(super) const BEGIN_READ: &str = "BEGIN";
pub(super) const BEGIN_WRITE: &str = "BEGIN IMMEDIATE";
pub(super) const COMMIT: &str = "COMMIT";
pub(super) const ROLLBACK: &str = "ROLLBACK";
pub(super) const SAVEPOINT: &str = "SAVEPOINT batch";
pub(super) const RELEASE: &str = "RELEASE batch";
pub(super) const ROLLBACK_TO: &str = "ROLLBACK TO batch";

/// Another number once another connection has committed.
pub(super) const DATA_VERSION: &str = "PRAGMA data_version";
/// Deleted and replaced bytes are overwritten, so that they cannot be read from the file any more.
pub(super) const ERASE_DELETED: &str = "PRAGMA secure_delete = ON";

pub(super) const NAME_MAX: &str = "SELECT max(id) FROM name";
pub(super) const NAME_BY_ID: &str = "SELECT kind, text FROM name WHERE id = ?1";
pub(super) const NAME_BY_TEXT: &str = "SELECT id FROM name WHERE kind = ?1 AND text = ?2";
pub(super) const NAME_INSERT: &str = "INSERT INTO name (kind, text) VALUES (?1, ?2)";

pub(super) const THREAD_BY_ID: &str = "SELECT id FROM thread WHERE public_id = ?1";
pub(super) const THREAD_INSERT: &str = "INSERT INTO thread (public_id, created_at) VALUES (?1, ?2)";
/// The page of threads that have a checkpoint in their root namespace.
pub(super) const THREADS: &str = "SELECT t.id, t.public_id, t.created_at, n.id FROM thread t \
     JOIN namespace n ON n.thread = t.id AND n.path = '' \
     WHERE t.public_id > ?1 AND EXISTS (SELECT 1 FROM checkpoint c WHERE c.namespace = n.id) \
     ORDER BY t.public_id LIMIT ?2";
pub(super) const THREAD_COUNTS: &str = "SELECT \
     (SELECT count(*) FROM namespace n JOIN checkpoint c ON c.namespace = n.id WHERE n.thread = ?1), \
     (SELECT count(*) FROM namespace n JOIN branch b ON b.namespace = n.id WHERE n.thread = ?1)";

pub(super) const NAMESPACE_BY_PATH: &str = "SELECT n.id FROM thread t JOIN namespace n ON n.thread = t.id \
     WHERE t.public_id = ?1 AND n.path = ?2";
pub(super) const NAMESPACE_INSERT: &str = "INSERT INTO namespace (thread, path) VALUES (?1, ?2)";
pub(super) const NAMESPACES: &str =
    "SELECT n.path FROM thread t JOIN namespace n ON n.thread = t.id WHERE t.public_id = ?1 ORDER BY n.path";

pub(super) const BRANCH: &str = "SELECT parent, upto, depth FROM branch WHERE id = ?1";
pub(super) const BRANCH_INSERT: &str = "INSERT INTO branch (namespace, parent, upto, depth) VALUES (?1, ?2, ?3, ?4)";

pub(super) const SEQ_MAX: &str = "SELECT max(seq) FROM checkpoint";
pub(super) const HEAD: &str = "SELECT seq, id FROM checkpoint WHERE namespace = ?1 ORDER BY id DESC LIMIT 1";
pub(super) const HEAD_ID: &str = "SELECT c.id FROM checkpoint c WHERE c.namespace = \
     (SELECT n.id FROM thread t JOIN namespace n ON n.thread = t.id WHERE t.public_id = ?1 AND n.path = ?2) \
     ORDER BY c.id DESC LIMIT 1";
/// The same with its position in the log.
pub(super) const HEAD_SEQ: &str = "SELECT c.id, c.seq FROM checkpoint c WHERE c.namespace = \
     (SELECT n.id FROM thread t JOIN namespace n ON n.thread = t.id WHERE t.public_id = ?1 AND n.path = ?2) \
     ORDER BY c.id DESC LIMIT 1";
pub(super) const CHECKPOINT_SEQ: &str = "SELECT seq FROM checkpoint WHERE namespace = ?1 AND id = ?2";
/// The place of the rows of a checkpoint.
pub(super) const CHECKPOINT_PLACE: &str = "SELECT c.seq, c.branch, c.ordinal FROM checkpoint c WHERE c.namespace = \
     (SELECT n.id FROM thread t JOIN namespace n ON n.thread = t.id WHERE t.public_id = ?1 AND n.path = ?2) \
     AND c.id = ?3";
/// The fields of a checkpoint that the writer needs of a parent.
pub(super) const CHECKPOINT_KNOWN: &str = "SELECT id, branch, ordinal, sum, tasks FROM checkpoint WHERE seq = ?1";
pub(super) const CHECKPOINT_INSERT: &str = "INSERT INTO checkpoint \
     (seq, namespace, id, parent, branch, ordinal, step, source, created_at, run, metadata, parents, tasks, sum) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";

/// The columns of a checkpoint record, with the place of its parent.
macro_rules! record {
    ($($tail:literal),*) => {
        concat!(
            "SELECT c.seq, c.id, c.branch, c.ordinal, c.step, c.source, c.created_at, c.run, c.metadata, c.tasks, ",
            "n.path, t.public_id, c.parent, p.id, pn.path, pt.public_id, c.parents, p.ordinal FROM ", $($tail,)*
        )
    };
}
/// The joins of a record beside the checkpoint `c`.
macro_rules! record_joins {
    () => {
        " JOIN namespace n ON n.id = c.namespace JOIN thread t ON t.id = n.thread \
         LEFT JOIN checkpoint p ON p.seq = c.parent \
         LEFT JOIN namespace pn ON pn.id = p.namespace AND p.namespace <> c.namespace \
         LEFT JOIN thread pt ON pt.id = pn.thread "
    };
}
pub(super) const RECORD_HEAD: &str =
    concat!(record!("(SELECT * FROM checkpoint WHERE namespace = ?1 ORDER BY id DESC LIMIT 1) c"), record_joins!());
/// The index holds only runs whose ids are of version 8.
pub(super) const RECORD_OF_RUN: &str = concat!(
    record!(
        "(SELECT * FROM checkpoint WHERE run = ?1 AND substr(run, 7, 1) BETWEEN X'80' AND X'8f' AND namespace = ?2 \
         ORDER BY id DESC LIMIT 1) c"
    ),
    record_joins!()
);
pub(super) const RECORD_AT: &str =
    concat!(record!("checkpoint c"), record_joins!(), "WHERE c.namespace = ?1 AND c.id = ?2");
pub(super) const RECORD_BY_SEQ: &str = concat!(record!("checkpoint c"), record_joins!(), "WHERE c.seq = ?1");
pub(super) const CHECKPOINT_PARENT: &str = "SELECT parent FROM checkpoint WHERE seq = ?1";
pub(super) const RECORDS_OF_NAMESPACE: &str = concat!(
    record!("(SELECT * FROM checkpoint WHERE namespace = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3) c"),
    record_joins!(),
    "ORDER BY c.id DESC"
);
/// The inner query reads only the index; rows are fetched for the page alone.
pub(super) const RECORDS_OF_THREAD: &str = concat!(
    record!(
        "(SELECT k.seq AS at FROM thread h JOIN namespace m ON m.thread = h.id JOIN checkpoint k \
         ON k.namespace = m.id WHERE h.public_id = ?1 AND k.id < ?2 ORDER BY k.id DESC, k.seq DESC LIMIT ?3) s \
         JOIN checkpoint c ON c.seq = s.at"
    ),
    record_joins!(),
    "ORDER BY c.id DESC, c.seq DESC"
);
pub(super) const RECORDS_BY_PREFIX: &str = concat!(
    record!(
        "(SELECT k.seq AS at FROM thread h JOIN namespace m ON m.thread = h.id JOIN checkpoint k \
         ON k.namespace = m.id WHERE h.public_id = ?1 AND k.id BETWEEN ?2 AND ?3 ORDER BY k.id, k.seq LIMIT ?4) s \
         JOIN checkpoint c ON c.seq = s.at"
    ),
    record_joins!(),
    "ORDER BY c.id, c.seq"
);

pub(super) const VERSION_INSERT: &str = "INSERT INTO version (branch, ordinal, key, version, kind, task, value) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
pub(super) const VERSIONS_OF_SPAN: &str = "SELECT ordinal, key, version, kind, task, value FROM version \
     WHERE branch = ?1 AND ordinal BETWEEN ?2 AND ?3 ORDER BY ordinal DESC, key DESC";
pub(super) const VERSION_AT: &str =
    "SELECT ordinal, key, version, kind, task, value FROM version WHERE branch = ?1 AND ordinal = ?2 AND key = ?3";

pub(super) const BLOB_BY_HASH: &str = "SELECT id FROM blob WHERE hash = ?1";
pub(super) const BLOB_INSERT: &str = "INSERT INTO blob (hash, data) VALUES (?1, ?2)";
pub(super) const BLOB_BY_ID: &str = "SELECT data FROM blob WHERE id = ?1";

/// The columns of a payload, in the order in which they are decoded.
macro_rules! payload {
    () => {
        "p.form, p.xxh3, p.data, p.item_id, p.kind, p.text, p.name, p.tool_calls, p.input_tokens, p.output_tokens "
    };
}
pub(super) const PAYLOAD_INSERT: &str = "INSERT INTO payload (form, xxh3, data, item_id, kind, text, name, \
     tool_calls, input_tokens, output_tokens) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
pub(super) const PAYLOAD_BY_ID: &str = concat!("SELECT ", payload!(), "FROM payload p WHERE p.id = ?1");

pub(super) const ITEM_INSERT: &str = "INSERT INTO item (branch, channel, slot, ordinal, op, task, value) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
pub(super) const ITEM_ANY: &str = "SELECT 1 FROM item WHERE branch = ?1 AND channel = ?2 LIMIT 1";
pub(super) const ITEMS_JOINED: &str = concat!(
    "SELECT i.slot, i.ordinal, i.task, i.value, ",
    payload!(),
    "FROM item i LEFT JOIN payload p ON p.id = i.value \
     WHERE i.branch = ?1 AND i.channel = ?2 AND i.slot BETWEEN ?3 AND ?4 AND i.ordinal <= ?5 \
     ORDER BY i.slot, i.ordinal DESC"
);
pub(super) const ITEMS: &str = "SELECT slot, ordinal, op, task, value FROM item WHERE branch = ?1 AND channel = ?2 \
     AND slot BETWEEN ?3 AND ?4 AND ordinal <= ?5 ORDER BY slot, ordinal DESC";
pub(super) const ITEMS_BACKWARDS: &str = "SELECT slot, ordinal, op, task, value FROM item WHERE branch = ?1 \
     AND channel = ?2 AND slot >= 0 AND ordinal <= ?3 ORDER BY slot DESC, ordinal LIMIT ?4";
pub(super) const DELETED_RANGES: &str =
    "SELECT ordinal, op, task, value FROM item WHERE branch = ?1 AND channel = ?2 AND slot BETWEEN ?3 AND ?4";
/// The checkpoint of a referenced list.
pub(super) const LIST_OF: &str = "SELECT t.public_id, n.path, c.id FROM checkpoint c JOIN namespace n ON n.id = c.namespace \
     JOIN thread t ON t.id = n.thread WHERE c.seq = ?1";

pub(super) const WRITE_INSERT: &str = "INSERT INTO write (checkpoint, task, idx, part, channel, value, child, path, \
     sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
pub(super) const WRITE_DELETE: &str = "DELETE FROM write WHERE checkpoint = ?1 AND task = ?2 AND idx = ?3";
pub(super) const WRITES_TAKEN: &str = "SELECT idx, child FROM write WHERE checkpoint = ?1 AND task = ?2";
pub(super) const WRITE_VALUE: &str =
    "SELECT value FROM write WHERE checkpoint = ?1 AND task = ?2 AND idx = ?3 AND part IN (?4, ?5)";
pub(super) const WRITES: &str =
    "SELECT task, idx, part, channel, value, path FROM write WHERE checkpoint = ?1 ORDER BY task, idx, part";

/// The place of the value of a special write that is about to be replaced.
pub(super) const WRITE_REPLACED: &str =
    "SELECT value FROM write WHERE checkpoint = ?1 AND task = ?2 AND idx = ?3 AND typeof(value) = 'integer'";

pub(super) const TIMER_PUT: &str = "INSERT INTO timer (namespace, task, checkpoint, wake_at, xxh3) \
     VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (namespace, task) DO UPDATE \
     SET checkpoint = excluded.checkpoint, wake_at = excluded.wake_at, xxh3 = excluded.xxh3";
pub(super) const TIMER_DELETE: &str = "DELETE FROM timer WHERE namespace = ?1 AND task = ?2";
pub(super) const TIMERS_DELETE: &str = "DELETE FROM timer WHERE namespace = ?1";
/// The columns of a timer, in the order in which they are decoded.
macro_rules! timer {
    () => {
        "SELECT r.task, r.wake_at, r.xxh3, c.id, n.path, t.public_id FROM timer r \
         LEFT JOIN checkpoint c ON c.seq = r.checkpoint AND c.namespace = r.namespace \
         LEFT JOIN namespace n ON n.id = r.namespace LEFT JOIN thread t ON t.id = n.thread "
    };
}
pub(super) const TIMERS: &str =
    concat!(timer!(), "WHERE r.wake_at <= ?1 ORDER BY r.wake_at, t.public_id, n.path, r.task LIMIT ?2");
pub(super) const CHECK_TIMERS: &str = concat!(timer!(), "ORDER BY r.namespace, r.task");

pub(super) const ERASE: &str = "INSERT OR IGNORE INTO erasure (thread) SELECT id FROM thread WHERE public_id = ?1";
/// Lets the value of a special write go that is replaced.
pub(super) const ERASE_VALUE: &str = "INSERT INTO erasure (thread) VALUES (0)";
pub(super) const ERASED: &str = "DELETE FROM erasure";
/// A child of a checkpoint of another thread opens a branch whose parent belongs to that thread.
pub(super) const ERASE_FORKS: &str = "SELECT DISTINCT t.public_id, f.public_id FROM branch b \
     JOIN namespace fn ON fn.id = b.namespace JOIN thread f ON f.id = fn.thread \
     JOIN branch p ON p.id = b.parent JOIN namespace n ON n.id = p.namespace JOIN thread t ON t.id = n.thread \
     WHERE n.thread IN (SELECT thread FROM erasure) AND fn.thread NOT IN (SELECT thread FROM erasure) ORDER BY 1, 2";

/// The rows of the threads that are erased.
macro_rules! erased {
    (namespaces) => {
        "(SELECT id FROM namespace WHERE thread IN (SELECT thread FROM erasure))"
    };
    (branches) => {
        concat!("(SELECT id FROM branch WHERE namespace IN ", erased!(namespaces), ")")
    };
    (checkpoints) => {
        concat!("(SELECT seq FROM checkpoint WHERE namespace IN ", erased!(namespaces), ")")
    };
}
/// The payloads of the erased threads, but for those of writes that a fork took over from its source.
pub(super) const ERASE_PAYLOADS: &str = concat!(
    "SELECT value FROM version WHERE branch IN ",
    erased!(branches),
    " AND typeof(value) = 'integer' UNION SELECT value FROM item WHERE branch IN ",
    erased!(branches),
    " AND typeof(value) = 'integer' UNION SELECT value FROM write WHERE checkpoint IN ",
    erased!(checkpoints),
    " AND typeof(value) = 'integer' EXCEPT SELECT value FROM write WHERE checkpoint IN \
     (SELECT parent FROM checkpoint WHERE namespace IN ",
    erased!(namespaces),
    " EXCEPT SELECT seq FROM checkpoint WHERE namespace IN ",
    erased!(namespaces),
    ")"
);
pub(super) const PAYLOAD_BLOBS: &str = "SELECT CASE typeof(data) WHEN 'integer' THEN data END, \
     CASE typeof(text) WHEN 'integer' THEN text END FROM payload WHERE id = ?1";
pub(super) const PAYLOAD_DELETE: &str = "DELETE FROM payload WHERE id = ?1";
pub(super) const BLOB_DELETE: &str = "DELETE FROM blob WHERE id = ?1 \
     AND NOT EXISTS (SELECT 1 FROM payload WHERE typeof(data) = 'integer' AND data = ?1) \
     AND NOT EXISTS (SELECT 1 FROM payload WHERE typeof(text) = 'integer' AND text = ?1)";
/// The rows of the erased threads: each before the row it belongs to.
pub(super) const ERASE_ROWS: [&str; 8] = [
    concat!("DELETE FROM version WHERE branch IN ", erased!(branches)),
    concat!("DELETE FROM item WHERE branch IN ", erased!(branches)),
    concat!("DELETE FROM write WHERE checkpoint IN ", erased!(checkpoints)),
    concat!("DELETE FROM timer WHERE namespace IN ", erased!(namespaces)),
    concat!("DELETE FROM branch WHERE namespace IN ", erased!(namespaces)),
    concat!("DELETE FROM checkpoint WHERE namespace IN ", erased!(namespaces)),
    "DELETE FROM namespace WHERE thread IN (SELECT thread FROM erasure)",
    "DELETE FROM thread WHERE id IN (SELECT thread FROM erasure)",
];

pub(super) const KV_NAMESPACE: &str = "SELECT id FROM kv_namespace WHERE path = ?1";
pub(super) const KV_NAMESPACE_INSERT: &str = "INSERT INTO kv_namespace (path) VALUES (?1)";
/// A namespace goes with its last key.
pub(super) const KV_NAMESPACE_DELETE: &str =
    "DELETE FROM kv_namespace WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM kv WHERE namespace = ?1)";
pub(super) const KV_NAMESPACES: &str = "SELECT id, path FROM kv_namespace n WHERE \
     EXISTS (SELECT 1 FROM kv k WHERE k.namespace = n.id AND (k.expires_at IS NULL OR k.expires_at > ?1)) ORDER BY id";
/// Those at a path and inside it: the paths that go on with a dot lie between two bounds.
pub(super) const KV_NAMESPACES_UNDER: &str = "SELECT id, path FROM kv_namespace n WHERE \
     (path = ?2 OR (path > ?3 AND path < ?4)) AND \
     EXISTS (SELECT 1 FROM kv k WHERE k.namespace = n.id AND (k.expires_at IS NULL OR k.expires_at > ?1)) ORDER BY id";
pub(super) const KV_PLACE: &str = "SELECT id, created_at, expires_at FROM kv WHERE namespace = ?1 AND key = ?2";
pub(super) const KV_INSERT: &str = "INSERT INTO kv (namespace, key, created_at, updated_at, expires_at, xxh3, codec, \
     data) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
pub(super) const KV_UPDATE: &str =
    "UPDATE kv SET updated_at = ?2, expires_at = ?3, xxh3 = ?4, codec = ?5, data = ?6 WHERE id = ?1";
pub(super) const KV_DELETE: &str = "DELETE FROM kv WHERE id = ?1";
pub(super) const KV_EXPIRED: &str =
    "SELECT id, namespace FROM kv WHERE expires_at IS NOT NULL AND expires_at <= ?1 ORDER BY expires_at LIMIT ?2";
/// The columns of an entry, in the order in which they are decoded.
macro_rules! kv {
    () => {
        "SELECT k.key, k.created_at, k.updated_at, k.expires_at, k.xxh3, k.codec, k.data, n.path "
    };
}
pub(super) const KV_ENTRY: &str = concat!(
    kv!(),
    "FROM kv_namespace n JOIN kv k ON k.namespace = n.id WHERE n.path = ?2 AND k.key = ?3 \
     AND (k.expires_at IS NULL OR k.expires_at > ?1)"
);
pub(super) const KV_ENTRIES: &str = concat!(
    kv!(),
    "FROM kv k JOIN kv_namespace n ON n.id = k.namespace WHERE k.namespace = ?2 \
     AND (k.expires_at IS NULL OR k.expires_at > ?1) ORDER BY k.id"
);
pub(super) const CHECK_KV: &str =
    concat!(kv!(), ", k.id FROM kv k LEFT JOIN kv_namespace n ON n.id = k.namespace ORDER BY k.id");

pub(super) const CACHE_PUT: &str = "INSERT INTO cache (namespace, key, expires_at, xxh3, codec, data) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (namespace, key) DO UPDATE \
     SET expires_at = excluded.expires_at, xxh3 = excluded.xxh3, codec = excluded.codec, data = excluded.data";
pub(super) const CACHE_CLEAR: &str = "DELETE FROM cache";
pub(super) const CACHE_CLEAR_UNDER: &str = "DELETE FROM cache WHERE namespace >= ?1 AND namespace < ?2";
pub(super) const CACHE_EXPIRED: &str = "DELETE FROM cache WHERE id IN (SELECT id FROM cache \
     WHERE expires_at IS NOT NULL AND expires_at <= ?1 ORDER BY expires_at LIMIT ?2)";
/// The columns of an entry, in the order in which they are decoded.
macro_rules! cache {
    () => {
        "SELECT namespace, key, expires_at, xxh3, codec, data "
    };
}
pub(super) const CACHED: &str =
    concat!(cache!(), "FROM cache WHERE namespace = ?2 AND key = ?3 AND (expires_at IS NULL OR expires_at > ?1)");
pub(super) const CHECK_CACHE: &str = concat!(cache!(), ", id FROM cache ORDER BY id");

/// The statements of most reads, prepared when a handle is opened.
pub(super) const READ_OFTEN: [&str; 19] = [
    BEGIN_READ,
    COMMIT,
    NAMESPACE_BY_PATH,
    HEAD_ID,
    HEAD_SEQ,
    RECORD_HEAD,
    RECORD_AT,
    CHECKPOINT_PLACE,
    BRANCH,
    NAME_BY_TEXT,
    NAME_BY_ID,
    VERSIONS_OF_SPAN,
    VERSION_AT,
    DELETED_RANGES,
    ITEMS_BACKWARDS,
    ITEMS_JOINED,
    PAYLOAD_BY_ID,
    WRITES_ANY,
    WRITES,
];

pub(super) const WRITES_ANY: &str = "SELECT 1 FROM write WHERE checkpoint = ?1 LIMIT 1";

pub(super) const INTEGRITY: &str = "PRAGMA integrity_check(100)";
pub(super) const CHECK_THREADS: &str = "SELECT count(*) FROM thread";
pub(super) const CHECK_BLOBS: &str = "SELECT id, hash, data FROM blob ORDER BY id";
pub(super) const CHECK_PAYLOADS: &str = concat!("SELECT ", payload!(), ", p.id FROM payload p ORDER BY p.id");
pub(super) const CHECK_BRANCHES: &str = "SELECT b.id, b.parent, b.upto, b.depth, p.depth FROM branch b \
     LEFT JOIN branch p ON p.id = b.parent ORDER BY b.id";
pub(super) const CHECK_IDS: &str = "SELECT seq, namespace, id FROM checkpoint ORDER BY seq";
pub(super) const CHECK_CHECKPOINTS: &str = "SELECT c.seq, t.public_id, n.path, c.id, c.parent, c.branch, \
     c.ordinal, c.step, c.source, c.created_at, c.run, c.metadata, c.tasks, c.sum, b.parent, b.upto, c.parents \
     FROM checkpoint c JOIN namespace n ON n.id = c.namespace JOIN thread t ON t.id = n.thread \
     JOIN branch b ON b.id = c.branch AND b.namespace = c.namespace ORDER BY c.branch, c.ordinal";
pub(super) const CHECK_VERSIONS: &str =
    "SELECT branch, ordinal, key, version, kind, task, value FROM version ORDER BY branch, ordinal, key";
pub(super) const CHECK_ITEMS: &str = "SELECT branch, ordinal, channel, slot, op, task, value FROM item \
     ORDER BY branch, ordinal, channel, slot";
pub(super) const CHECK_CONSUMED: &str = "SELECT task, idx, part, channel, value, path FROM write \
     WHERE checkpoint = ?1 AND child = ?2 AND idx >= 0";
pub(super) const CHECK_WRITES: &str = "SELECT w.checkpoint, w.task, w.idx, w.part, w.channel, w.value, w.path, w.sum, \
     w.child, c.parent FROM write w LEFT JOIN checkpoint c ON c.seq = w.child \
     ORDER BY w.checkpoint, w.task, w.idx, w.part";
/// Rows that belong to nothing.
pub(super) const CHECK_ORPHANS: [(&str, &str); 11] = [
    ("erasure", "SELECT count(*) FROM erasure"),
    (
        "timer",
        "SELECT count(*) FROM timer r WHERE NOT EXISTS \
         (SELECT 1 FROM checkpoint c WHERE c.seq = r.checkpoint AND c.namespace = r.namespace)",
    ),
    (
        "payload",
        "SELECT count(*) FROM payload WHERE id NOT IN (SELECT value FROM version WHERE typeof(value) = 'integer' \
         UNION SELECT value FROM item WHERE typeof(value) = 'integer' \
         UNION SELECT value FROM write WHERE typeof(value) = 'integer')",
    ),
    ("kv", "SELECT count(*) FROM kv WHERE namespace NOT IN (SELECT id FROM kv_namespace)"),
    ("kv_namespace", "SELECT count(*) FROM kv_namespace WHERE id NOT IN (SELECT namespace FROM kv)"),
    (
        "payload with columns that its sum does not cover",
        "SELECT count(*) FROM payload WHERE (form & 1 = 0 AND coalesce(item_id, kind, text) IS NOT NULL) \
         OR (form & 2 = 0 AND coalesce(name, tool_calls, input_tokens, output_tokens) IS NOT NULL)",
    ),
    (
        "checkpoint",
        "SELECT count(*) FROM checkpoint c LEFT JOIN namespace n ON n.id = c.namespace \
         LEFT JOIN thread t ON t.id = n.thread LEFT JOIN branch b ON b.id = c.branch AND b.namespace = c.namespace \
         WHERE t.id IS NULL OR b.id IS NULL",
    ),
    ("namespace", "SELECT count(*) FROM namespace WHERE thread NOT IN (SELECT id FROM thread)"),
    ("branch", "SELECT count(*) FROM branch WHERE id NOT IN (SELECT branch FROM checkpoint)"),
    ("write", "SELECT count(*) FROM write WHERE checkpoint NOT IN (SELECT seq FROM checkpoint)"),
    (
        "blob",
        "SELECT count(*) FROM blob WHERE id NOT IN (SELECT data FROM payload WHERE typeof(data) = 'integer' \
         UNION SELECT text FROM payload WHERE typeof(text) = 'integer')",
    ),
];
#[cfg(test)]
pub(super) const SCHEMA: &str = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid";
