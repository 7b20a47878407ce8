//! All SQL of the library. Values are always bound; no text is ever spliced in.

use super::tables::sql::select;
use super::tables::text::{columns, text};
use super::tables::{TableRow, branch, item, name, operation, operation_change, payload, thread, version, write};
use super::verify::neighbors::sql as neighbors;

/// Marks the file as a store of annals: `anls` in ASCII, in the application id of the SQLite header.
pub(crate) const APPLICATION_ID: i64 = 0x616e_6c73;
/// The application id of the files of builds before the first release: `annl`.
pub(crate) const UNRELEASED_ID: i64 = 0x616e_6e6c;
/// The format that this version writes, in the user version of the SQLite header.
pub(crate) const FORMAT: i64 = 1;
/// The page size of a new file. It must be set before the switch to WAL or it is ignored.
pub(crate) const PAGE_BYTES: u64 = 4_096;

/// The schema of a new file, with comments: a new file runs its
/// [`statements`](super::file::schema::statements).
pub(crate) const SCHEMA: &str = include_str!("../../../schema/sqlite/schema.sql");
/// Marks a new file; the numbers are those of [`APPLICATION_ID`] and [`FORMAT`].
pub(crate) const MARK: &str = "PRAGMA application_id = 1634626675; PRAGMA user_version = 1;";
/// The size of the pages of a new file.
pub(crate) const SET_PAGE_BYTES: &str = "PRAGMA page_size = 4096;";
/// Free pages can be returned to the file system in small steps, for which the file maps each page to its parent page.
/// SQLite writes the first page for it, in the open transaction.
pub(crate) const SET_AUTO_VACUUM: &str = "PRAGMA auto_vacuum = INCREMENTAL;";
pub(crate) const SET_WAL: &str = "PRAGMA journal_mode = WAL";
/// Gives up the WAL, which needs that no other connection has the file open.
pub(crate) const SET_ROLLBACK: &str = "PRAGMA journal_mode = DELETE";
/// Retains the locks that the connection gets until it is closed.
pub(crate) const LOCK_FILE: &str = "PRAGMA locking_mode = EXCLUSIVE";
pub(crate) const JOURNAL_MODE: &str = "PRAGMA journal_mode";
/// By pragmas: a table of the file may have the name of a pragma's table-valued function, and would be read in its
/// place.
pub(crate) const READ_APPLICATION_ID: &str = "PRAGMA application_id";
pub(crate) const READ_FORMAT: &str = "PRAGMA user_version";
pub(crate) const SET_FORMAT: &str = "PRAGMA user_version = {number}";
pub(crate) const READ_PAGE_BYTES: &str = "PRAGMA page_size";
pub(crate) const HAS_OBJECTS: &str = "SELECT EXISTS (SELECT 1 FROM sqlite_schema)";
/// The objects of the schema and whether each has a page of its own.
pub(crate) const SCHEMA_OBJECTS: &str =
    "SELECT type, name, tbl_name, sql, coalesce(rootpage, 0) > 0 FROM sqlite_schema";
/// The tables that the foreign keys of a table refer to.
pub(crate) const FOREIGN_TABLES: &str = "SELECT \"table\" FROM pragma_foreign_key_list(?1)";
/// The tables and indexes whose names do not say that they are those of an application, which its transactions may
/// make.
pub(crate) const UNMARKED_OBJECTS: &str = "SELECT count(*) FROM sqlite_schema WHERE substr(name, 1, 4) <> 'app_' COLLATE NOCASE \
     AND substr(name, 1, 21) <> 'sqlite_autoindex_app_' COLLATE NOCASE AND name <> 'sqlite_sequence'";
/// True if a table has a row; its name is one of the format.
pub(crate) const HAS_ROW: &str = "SELECT EXISTS (SELECT 1 FROM {table})";
pub(crate) const SCHEMA_VERSION: &str = "PRAGMA schema_version";
/// Automatic WAL checkpoints swallow errors and were half the cost of a commit: they are run explicitly.
pub(crate) const CONFIGURE: &str = "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA wal_autocheckpoint = 0; PRAGMA temp_store = 2; \
     PRAGMA foreign_keys = ON;";
pub(crate) const SYNC_FULL: &str = "PRAGMA synchronous = FULL";
pub(crate) const SYNC_NORMAL: &str = "PRAGMA synchronous = NORMAL";
/// On macOS, an fsync flushes the drive's own cache only on request; elsewhere these change nothing.
pub(crate) const FULL_FSYNC: &str = "PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;";
pub(crate) const PLAIN_FSYNC: &str = "PRAGMA fullfsync = OFF; PRAGMA checkpoint_fullfsync = OFF;";
pub(crate) const QUERY_ONLY: &str = "PRAGMA query_only = ON";
/// The page cache of a reader has 1 MiB: a commit empties it, and a state is read page after page. With 8 MiB a whole
/// state of 10,000 messages took a fifth longer, which was spent on allocating pages.
pub(crate) const READER_CACHE: &str = "PRAGMA cache_size = -1024";
/// The mark of the log, with a new random one beside it.
pub(crate) const WAL_MARK: &str =
    text!("SELECT ", columns!(wal_mark, ""), ", randomblob(16) FROM wal_mark WHERE id = 0");
pub(crate) const WAL_MARK_UPDATE: &str = "UPDATE wal_mark SET store = ?2, generation = ?3, mark = ?4, before = ?5, \
     open = ?6, xxh3 = ?7 WHERE id = ?1";
pub(crate) const HAS_WAL_MARK: &str = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'wal_mark')";
/// The random bytes of a first mark: the id of the store, the mark, and the one before.
pub(crate) const RANDOM_MARK: &str = "SELECT randomblob(16), randomblob(16), randomblob(16)";
/// For a file that is thrown away if its process ends.
pub(crate) const UNSAFE_JOURNAL: &str = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;";
pub(crate) const WAL_PASSIVE: &str = "PRAGMA wal_checkpoint(PASSIVE)";
/// Copies nothing and reports the numbers; an older SQLite takes an unknown word for `PASSIVE`.
pub(crate) const WAL_NOOP: &str = "PRAGMA wal_checkpoint(NOOP)";
pub(crate) const WAL_TRUNCATE: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

pub(crate) const FREE_PAGES: &str = "PRAGMA freelist_count";
pub(crate) const ALL_PAGES: &str = "PRAGMA page_count";
/// Each step of the statement returns a page.
pub(crate) const RETURN_PAGES: &str = "PRAGMA incremental_vacuum";

/// Writes what one snapshot holds to a new file, or to an empty one.
pub(crate) const COPY_INTO: &str = "VACUUM main INTO ?1";

pub(crate) const BEGIN_READ: &str = "BEGIN";
pub(crate) const BEGIN_WRITE: &str = "BEGIN IMMEDIATE";
/// No other connection reads or writes until the transaction ends.
pub(crate) const BEGIN_ALONE: &str = "BEGIN EXCLUSIVE";
pub(crate) const COMMIT: &str = "COMMIT";
pub(crate) const ROLLBACK: &str = "ROLLBACK";
pub(crate) const SAVEPOINT: &str = "SAVEPOINT batch";
/// A statement of an application that is undone alone.
pub(crate) const SAVEPOINT_STATEMENT: &str = "SAVEPOINT statement";
pub(crate) const RELEASE_STATEMENT: &str = "RELEASE statement";
pub(crate) const ROLLBACK_STATEMENT: &str = "ROLLBACK TO statement";
pub(crate) const RELEASE: &str = "RELEASE batch";
pub(crate) const ROLLBACK_TO: &str = "ROLLBACK TO batch";

/// Another number once another connection has committed.
pub(crate) const DATA_VERSION: &str = "PRAGMA data_version";
/// Deleted and replaced bytes are overwritten, so that they cannot be read from the file any more.
pub(crate) const ERASE_DELETED: &str = "PRAGMA secure_delete = ON";

pub(crate) const NAME_BY_TEXT: &str = text!(name::Row::SELECT, "WHERE kind = ?1 AND text = ?2");
pub(crate) const NAME_USERS: &str = "SELECT thread FROM name_user WHERE name = ?1";

/// The marks of the last deletion, and for each table the id above all that were ever used.
pub(crate) const NEXT_IDS: &str = "SELECT coalesce(h.checkpoint, 0), coalesce(h.names_erased, 0), \
     max(coalesce(h.name, 0), coalesce((SELECT max(id) FROM name), 0)) + 1, \
     max(coalesce(h.thread, 0), coalesce((SELECT max(id) FROM thread), 0)) + 1, \
     max(coalesce(h.namespace, 0), coalesce((SELECT max(id) FROM namespace), 0)) + 1, \
     max(coalesce(h.branch, 0), coalesce((SELECT max(id) FROM branch), 0)) + 1, \
     max(coalesce(h.payload, 0), coalesce((SELECT max(id) FROM payload), 0)) + 1, \
     max(coalesce(h.blob, 0), coalesce((SELECT max(id) FROM blob), 0)) + 1, \
     max(coalesce(h.operation, 0), coalesce((SELECT max(id) FROM operation), 0)) + 1 \
     FROM (SELECT 0 AS id) o LEFT JOIN high_water h ON h.id = o.id";
/// Notes the greatest ids before rows are deleted.
pub(crate) const HIGH_WATER_RAISE: &str = "INSERT INTO high_water \
     (id, name, thread, namespace, branch, checkpoint, payload, blob, names_erased, operation) VALUES (0, \
     (SELECT coalesce(max(id), 0) FROM name), (SELECT coalesce(max(id), 0) FROM thread), \
     (SELECT coalesce(max(id), 0) FROM namespace), (SELECT coalesce(max(id), 0) FROM branch), \
     (SELECT coalesce(max(seq), 0) FROM checkpoint), (SELECT coalesce(max(id), 0) FROM payload), \
     (SELECT coalesce(max(id), 0) FROM blob), 0, (SELECT coalesce(max(id), 0) FROM operation)) ON CONFLICT (id) DO UPDATE SET name = max(name, excluded.name), \
     thread = max(thread, excluded.thread), namespace = max(namespace, excluded.namespace), \
     branch = max(branch, excluded.branch), checkpoint = max(checkpoint, excluded.checkpoint), \
     payload = max(payload, excluded.payload), blob = max(blob, excluded.blob), \
     operation = max(operation, excluded.operation)";

pub(crate) const THREAD_BY_ID: &str = text!(thread::Row::SELECT, "WHERE public_id = ?1");
/// The page of threads, each with its root namespace.
pub(crate) const THREADS: &str = select!(
    thread as t,
    ", n.id FROM thread t LEFT JOIN namespace n ON n.thread = t.id AND n.path = '' \
     WHERE t.public_id > ?1 ORDER BY t.public_id LIMIT ?2"
);
/// True if a thread or a namespace is stored that its index does not show.
pub(crate) const UNLISTED: &str = "SELECT \
     EXISTS (SELECT 1 FROM thread t NOT INDEXED WHERE NOT EXISTS (SELECT 1 FROM thread i \
     INDEXED BY sqlite_autoindex_thread_1 WHERE i.public_id = t.public_id AND i.id = t.id)) OR \
     EXISTS (SELECT 1 FROM namespace n NOT INDEXED WHERE NOT EXISTS (SELECT 1 FROM namespace i \
     INDEXED BY sqlite_autoindex_namespace_1 WHERE i.thread = n.thread AND i.path = n.path AND i.id = n.id))";
pub(crate) const THREAD_SIZE: &str = "SELECT \
     (SELECT count(*) FROM namespace n JOIN checkpoint c ON c.namespace = n.id WHERE n.thread = t.id), \
     (SELECT count(*) FROM namespace n JOIN branch b ON b.namespace = n.id WHERE n.thread = t.id) \
     FROM thread t WHERE t.public_id = ?1";

/// The number of the checkpoints of a thread that were pruned.
pub(crate) const THREAD_PRUNED: &str = "SELECT count(*) FROM thread t JOIN namespace n ON n.thread = t.id \
     JOIN checkpoint c ON c.namespace = n.id WHERE t.public_id = ?1 AND c.source < 0";

/// The branches of a thread, each with its last ordinal.
pub(crate) const THREAD_BRANCHES: &str = "SELECT b.id, (SELECT max(v.ordinal) FROM version v WHERE v.branch = b.id) \
     FROM thread t JOIN namespace n ON n.thread = t.id JOIN branch b ON b.namespace = n.id WHERE t.public_id = ?1";

pub(crate) const NAMESPACE_BY_PATH: &str = "SELECT n.id, t.id FROM thread t JOIN namespace n ON n.thread = t.id \
     WHERE t.public_id = ?1 AND n.path = ?2";
pub(crate) const NAMESPACES: &str = select!(
    namespace as n,
    " FROM thread t JOIN namespace n ON n.thread = t.id WHERE t.public_id = ?1 ORDER BY n.path"
);

/// The thread of a branch.
pub(crate) const BRANCH_THREAD: &str =
    "SELECT n.thread FROM branch b JOIN namespace n ON n.id = b.namespace WHERE b.id = ?1";

/// The newest change of a field by an operation.
pub(crate) const FIELD_CHANGE: &str = text!(
    operation_change::Row::SELECT,
    "WHERE namespace = ?1 AND kind = ?2 AND key = ?3 ORDER BY operation DESC LIMIT 1"
);
/// The newest change of each field of a namespace but its head.
pub(crate) const FIELDS: &str = select!(
    operation_change as c,
    " FROM operation_change c WHERE c.namespace = ?1 AND c.kind > 0 AND c.operation = (SELECT max(o.operation) \
     FROM operation_change o WHERE o.namespace = c.namespace AND o.kind = c.kind AND o.key = c.key) ORDER BY c.kind, c.key"
);
/// The newest change of the fact `trashed` of each thread that is in the trash.
pub(crate) const TRASH: &str = select!(
    operation_change as c,
    ", t.public_id FROM operation_change c INDEXED BY operation_change_trash CROSS JOIN namespace n \
     ON n.id = c.namespace CROSS JOIN thread t ON t.id = n.thread WHERE c.kind = 3 AND c.key = 'trashed' \
     AND c.after IS NOT NULL AND c.operation = (SELECT max(o.operation) FROM operation_change o \
     WHERE o.namespace = c.namespace AND o.kind = 3 AND o.key = 'trashed')"
);
/// The changes of the fact `trashed` by the operations after one, the oldest first.
pub(crate) const TRASH_SINCE: &str = select!(
    operation_change as c,
    ", t.public_id FROM operation_change c INDEXED BY operation_change_operation CROSS JOIN namespace n \
     ON n.id = c.namespace CROSS JOIN thread t ON t.id = n.thread \
     WHERE c.operation > ?1 AND c.kind = 3 AND c.key = 'trashed' ORDER BY c.operation"
);
pub(crate) const OPERATIONS: &str = text!(operation::Row::SELECT, "WHERE id < ?1 ORDER BY id DESC");
/// The operations with a change of a namespace.
pub(crate) const OPERATIONS_OF: &str = "SELECT DISTINCT operation FROM operation_change WHERE namespace = ?1 AND operation < ?2 ORDER BY operation DESC LIMIT ?3";
/// The changes of an operation, with thread and path; those of deleted threads are not shown.
pub(crate) const OPERATION_CHANGES: &str = select!(
    operation_change as c,
    ", t.public_id, n.path FROM operation_change c LEFT JOIN namespace n ON n.id = c.namespace \
     LEFT JOIN thread t ON t.id = n.thread WHERE c.operation = ?1 AND NOT EXISTS \
     (SELECT 1 FROM tombstone d WHERE d.thread = n.thread)"
);
/// True if a thread has an id.
pub(crate) const HAS_THREAD: &str = "SELECT EXISTS (SELECT 1 FROM thread WHERE public_id = ?1)";
pub(crate) const PUBLIC_ID: &str = "SELECT public_id FROM thread WHERE id = ?1";
/// The id of a checkpoint of a namespace.
pub(crate) const CHECKPOINT_ID: &str = "SELECT id FROM checkpoint WHERE seq = ?1 AND namespace = ?2";
/// The operations that only changed a namespace.
pub(crate) const RECLAIM_OPERATIONS: &str = "DELETE FROM operation WHERE id IN \
     (SELECT operation FROM operation_change WHERE namespace = ?1) AND NOT EXISTS \
     (SELECT 1 FROM operation_change o WHERE o.operation = operation.id AND o.namespace <> ?1)";
/// The thread of a namespace.
pub(crate) const NAMESPACE_THREAD: &str = "SELECT thread FROM namespace WHERE id = ?1";
/// The checkpoint of another thread that the first branch of a namespace left.
pub(crate) const FORKED_FROM: &str = "SELECT c.id, t.public_id, n.path FROM (SELECT fork_checkpoint FROM branch \
     WHERE namespace = ?1 ORDER BY id LIMIT 1) b LEFT JOIN checkpoint c ON c.seq = b.fork_checkpoint \
     LEFT JOIN namespace n ON n.id = c.namespace LEFT JOIN thread t ON t.id = n.thread \
     WHERE b.fork_checkpoint IS NOT NULL";
/// True if a checkpoint of a namespace continues the one at an ordinal of a branch.
pub(crate) const IS_CONTINUED: &str = "SELECT EXISTS (SELECT 1 FROM version WHERE branch = ?2 AND ordinal > ?3) \
     OR EXISTS (SELECT 1 FROM branch WHERE namespace = ?1 AND parent = ?2 AND upto = ?3)";
/// The branches of a namespace, the newest first.
pub(crate) const BRANCHES: &str = text!(branch::Row::SELECT, "WHERE namespace = ?1 ORDER BY id DESC");
/// The greatest id of a namespace below an id, with its branch.
pub(crate) const ID_BELOW: &str = "SELECT id, branch FROM checkpoint WHERE namespace = ?1 AND prefix <= substr(?2, 1, 6) AND id < ?2 \
     ORDER BY prefix DESC, seq DESC LIMIT 1";

/// The newest checkpoint of a namespace. Ids of a namespace ascend with `seq`, so those with one prefix are in order
/// too.
pub(crate) const NEWEST: &str =
    "SELECT seq, id FROM checkpoint WHERE namespace = ?1 ORDER BY prefix DESC, seq DESC LIMIT 1";
pub(crate) const CHECKPOINT_SEQ: &str =
    "SELECT seq FROM checkpoint WHERE namespace = ?1 AND prefix = substr(?2, 1, 6) AND id = ?2";
/// The greatest branch of a namespace below another one, and whether the rows of a branch go on past an ordinal.
pub(crate) const PAST: &str = "SELECT (SELECT max(id) FROM branch WHERE namespace = ?1 AND id < ?4), \
     EXISTS (SELECT 1 FROM version WHERE branch = ?2 AND ordinal > ?3)";

/// The `seq` of the checkpoint that holds the id of the run of the checkpoint `c`, if `c` does not.
macro_rules! run_of {
    () => {
        "iif(typeof(c.run) = 'integer', c.seq - c.run, NULL) "
    };
}
pub(crate) use run_of;

/// Checkpoints `c` with their threads and paths, with the places of their parents, and with the columns that they are
/// relative to.
macro_rules! record {
    ($from:expr $(, $tail:expr)? $(; $more:literal)?) => {
        select!(checkpoint as c,
            ", t.public_id, n.path, p.id, pt.public_id, pn.path, p.ordinal, p.branch, r.run, r.created_at", $($more,)?
            " FROM ", $from,
            " CROSS JOIN namespace n ON n.id = c.namespace CROSS JOIN thread t ON t.id = n.thread \
             LEFT JOIN checkpoint p ON p.seq = c.seq - c.parent \
             LEFT JOIN namespace pn ON pn.id = p.namespace AND p.namespace <> c.namespace \
             LEFT JOIN thread pt ON pt.id = pn.thread LEFT JOIN checkpoint r ON r.seq = ", run_of!(), $($tail)?
        )
    };
}
pub(crate) const RECORD_HEAD: &str =
    record!("(SELECT * FROM checkpoint WHERE namespace = ?1 ORDER BY prefix DESC, seq DESC LIMIT 1) c");
/// The index holds only runs whose ids are of version 8.
pub(crate) const RECORD_OF_RUN: &str = record!(
    "(SELECT * FROM checkpoint WHERE run = ?1 AND substr(run, 7, 1) BETWEEN X'80' AND X'8f' AND namespace = ?2 \
         ORDER BY id DESC LIMIT 1) c"
);
pub(crate) const RECORD_AT: &str =
    record!("checkpoint c", "WHERE c.namespace = ?1 AND c.prefix = substr(?2, 1, 6) AND c.id = ?2");
/// The checkpoint that follows an id in its namespace.
pub(crate) const RECORD_AFTER: &str = record!(
    "(SELECT * FROM checkpoint WHERE namespace = ?1 AND prefix >= substr(?2, 1, 6) AND id > ?2 \
         ORDER BY prefix, seq LIMIT 1) c"
);
pub(crate) const RECORD_BY_SEQ: &str = record!("checkpoint c", "WHERE c.seq = ?1");
/// The checkpoints after a `seq`, of a thread or of all. They are read in the order of the table: the `+` bars any
/// other one.
pub(crate) const RECORDS_AFTER: &str =
    record!("checkpoint c", "WHERE c.seq > ?1 AND (?2 IS NULL OR +t.public_id = ?2) ORDER BY c.seq LIMIT ?3");
/// The newest checkpoint of a thread: one read of an index for each of its namespaces.
pub(crate) const NEWEST_OF_THREAD: &str = "SELECT max((SELECT c.seq FROM checkpoint c WHERE c.namespace = n.id \
     ORDER BY c.prefix DESC, c.seq DESC LIMIT 1)) FROM thread t CROSS JOIN namespace n ON n.thread = t.id WHERE t.public_id = ?1";
/// The last row of `version` of a checkpoint names its `seq`.
pub(crate) const RECORD_AT_PLACE: &str = record!(
    "checkpoint c",
    "WHERE c.seq = (SELECT v.ordinal + 1 + (v.kind >> 4) FROM version v WHERE v.branch = ?1 AND v.ordinal = ?2 \
     ORDER BY v.key DESC LIMIT 1)"
);
pub(crate) const PLACE_OF_SEQ: &str = "SELECT branch, ordinal FROM checkpoint WHERE seq = ?1";
pub(crate) const SOURCE_OF_SEQ: &str = "SELECT source FROM checkpoint WHERE seq = ?1";
/// The source of the checkpoint at a place.
pub(crate) const SOURCE_AT_PLACE: &str = "SELECT source FROM checkpoint WHERE seq = (SELECT v.ordinal + 1 + (v.kind >> 4) \
     FROM version v WHERE v.branch = ?1 AND v.ordinal = ?2 ORDER BY v.key DESC LIMIT 1)";
pub(crate) const RECORDS_OF_NAMESPACE: &str = record!(
    "(SELECT * FROM checkpoint WHERE namespace = ?1 AND prefix <= substr(?2, 1, 6) AND id < ?2 \
         ORDER BY prefix DESC, seq DESC LIMIT ?3) c",
    "ORDER BY c.id DESC"
);
/// The checkpoints of a thread, by its id.
macro_rules! of_thread {
    ($columns:literal, $($where:expr),+) => {
        concat!(
            "(SELECT ",
            $columns,
            " FROM thread h JOIN namespace m ON m.thread = h.id JOIN checkpoint k ON k.namespace = m.id \
             WHERE h.public_id = ?1 AND ",
            $($where,)+
            ")"
        )
    };
}
/// The newest checkpoints of a thread below an id. The inner query finds the prefix at which the page ends in the index
/// alone; rows are read from there on.
pub(crate) const RECORDS_OF_THREAD: &str = record!(
    concat!(
        of_thread!(
            "k.seq AS at",
            "k.prefix >= coalesce(",
            of_thread!("k.prefix", "k.prefix < substr(?2, 1, 6) ORDER BY 1 DESC LIMIT 1 OFFSET max(?3 - 1, 0)"),
            ", X'') AND k.prefix <= substr(?2, 1, 6) AND k.id < ?2 ORDER BY k.id DESC, k.seq DESC LIMIT ?3"
        ),
        " s JOIN checkpoint c ON c.seq = s.at"
    ),
    "ORDER BY c.id DESC, c.seq DESC"
);
/// The oldest checkpoints of a thread whose ids are in a range, in the same way.
pub(crate) const RECORDS_BY_PREFIX: &str = record!(
    concat!(
        of_thread!(
            "k.seq AS at",
            "k.prefix <= coalesce(",
            of_thread!("k.prefix", "k.prefix > substr(?2, 1, 6) ORDER BY 1 LIMIT 1 OFFSET max(?4 - 1, 0)"),
            ", X'FFFFFFFFFFFF') AND k.prefix >= substr(?2, 1, 6) AND k.id BETWEEN ?2 AND ?3 \
             ORDER BY k.id, k.seq LIMIT ?4"
        ),
        " s JOIN checkpoint c ON c.seq = s.at"
    ),
    "ORDER BY c.id, c.seq"
);

/// The rows of each checkpoint of a span, the newest checkpoint first.
pub(crate) const VERSIONS_OF_SPAN: &str =
    text!(version::Row::SELECT, "WHERE branch = ?1 AND ordinal BETWEEN ?2 AND ?3 ORDER BY ordinal DESC, key DESC");

pub(crate) const BLOB_BY_HASH: &str = "SELECT id FROM blob WHERE hash = ?1";

/// The newest payloads of items with an id. The index holds the end of each id.
pub(crate) const PAYLOADS_OF_ITEM: &str = "SELECT id FROM payload WHERE substr(item_id, -4) = substr(?1, -4) \
     AND item_id = ?1 ORDER BY id DESC LIMIT ?2";
/// The first position of a list on a branch from another one on, and the value that was put there first.
pub(crate) const ITEM_FIRST_PUT: &str = "SELECT f.slot, f.value FROM (SELECT slot AS at FROM item WHERE branch = ?1 \
     AND channel = ?2 AND slot >= ?3 AND ordinal <= ?4 ORDER BY slot LIMIT 1) CROSS JOIN item f ON f.branch = ?1 \
     AND f.channel = ?2 AND f.slot = at ORDER BY f.ordinal LIMIT 1";
/// Items with their payloads. Each column that is read costs as much as a seek, so these are those without which a row
/// cannot be verified.
pub(crate) const ITEMS_JOINED: &str = text!(
    "SELECT i.slot, i.ordinal, i.task, i.value, i.xxh3, ",
    columns!(payload, "p."),
    " FROM item i LEFT JOIN payload p ON p.id = i.value \
     WHERE i.branch = ?1 AND i.channel = ?2 AND i.slot BETWEEN ?3 AND ?4 \
     ORDER BY i.slot, i.ordinal DESC"
);
pub(crate) const ITEMS: &str = text!(
    item::Row::SELECT,
    "WHERE branch = ?1 AND channel = ?2 AND slot BETWEEN ?3 AND ?4 ORDER BY slot, ordinal DESC"
);
pub(crate) const ITEMS_BACKWARDS: &str = text!(
    item::Row::SELECT,
    "WHERE branch = ?1 AND channel = ?2 AND slot BETWEEN 0 AND ?3 ORDER BY slot DESC, ordinal LIMIT ?4"
);
/// True if a list has a range delete or a reference at a negative position.
pub(crate) const HAS_RANGE_ROW: &str =
    "SELECT EXISTS (SELECT 1 FROM item WHERE branch = ?1 AND channel = ?2 AND slot = ?3)";
pub(crate) const DELETED_RANGES: &str =
    text!(item::Row::SELECT, "WHERE branch = ?1 AND channel = ?2 AND slot BETWEEN ?3 AND ?4");
pub(crate) const WRITE_DELETE: &str = "DELETE FROM write WHERE checkpoint = ?1 AND task = ?2 AND idx = ?3";
pub(crate) const WRITES_TAKEN: &str = "SELECT idx, checkpoint + child FROM write WHERE checkpoint = ?1 AND task = ?2";
pub(crate) const WRITES_OF_TASK: &str =
    text!(write::Row::SELECT, "WHERE checkpoint = ?1 AND task = ?2 ORDER BY idx, part");

/// The place of the value of a special write that is about to be replaced.
pub(crate) const WRITE_REPLACED: &str =
    "SELECT value FROM write WHERE checkpoint = ?1 AND task = ?2 AND idx = ?3 AND typeof(value) = 'integer'";

pub(crate) const TIMER_PUT: &str = "INSERT INTO timer (namespace, task, checkpoint, wake_at, xxh3) \
     VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (namespace, task) DO UPDATE \
     SET checkpoint = excluded.checkpoint, wake_at = excluded.wake_at, xxh3 = excluded.xxh3";
/// The timers that a superstep passes. Those of other branches stay: their heads may move back.
pub(crate) const TIMERS_PASSED: &str = "DELETE FROM timer WHERE namespace = ?1 AND checkpoint = ?2";
/// The root namespaces of the threads in which a task sleeps, by the marks of its writes.
pub(crate) const CHECK_SLEEPERS: &str = "SELECT DISTINCT n.id, t.public_id FROM write w JOIN checkpoint c ON c.seq = w.checkpoint \
     JOIN namespace n ON n.id = c.namespace AND n.path = '' JOIN thread t ON t.id = n.thread WHERE w.mark >= 0 OR w.mark <= -16";

/// Lets rows of the log go: those of deleted threads, and the value of a special write that is replaced.
pub(crate) const ERASE_BEGIN: &str = "INSERT INTO tombstone (thread, state) VALUES (0, 2)";
pub(crate) const ERASE_END: &str = "DELETE FROM tombstone WHERE thread = 0";
/// The threads that have a branch which left one of another thread, the first fork first. A deleted one has no row.
pub(crate) const FORKS_OF_THREAD: &str = "SELECT f.id, f.public_id FROM branch b CROSS JOIN namespace n ON n.id = b.namespace \
     CROSS JOIN thread f ON f.id = n.thread WHERE b.fork_thread = ?1 ORDER BY b.id";
pub(crate) const TOMBSTONE_DELETE: &str = "DELETE FROM tombstone WHERE thread = ?1 AND state = 1";
/// All rows of a deleted thread are gone.
pub(crate) const TOMBSTONE_CLEARED: &str = "UPDATE tombstone SET state = 1 WHERE thread = ?1";
/// A thread that exists is not erased, whatever a tombstone says.
pub(crate) const TOMBSTONE_NEXT: &str = "SELECT d.thread FROM tombstone d WHERE d.state = 0 \
     AND NOT EXISTS (SELECT 1 FROM thread t WHERE t.id = d.thread) LIMIT 1";
pub(crate) const TOMBSTONE_STORED: &str = "SELECT thread FROM tombstone WHERE state = 0 LIMIT 1";

pub(crate) const RECLAIM_NAMESPACE: &str = "SELECT id FROM namespace WHERE thread = ?1 LIMIT 1";
pub(crate) const RECLAIM_BRANCH: &str = "SELECT id, upto, fork_checkpoint FROM branch WHERE namespace = ?1 LIMIT 1";
pub(crate) const RECLAIM_CHECKPOINTS: &str =
    "SELECT seq FROM checkpoint WHERE namespace = ?1 ORDER BY prefix, seq LIMIT ?2";
/// The payloads of the writes of a checkpoint, which a fork may have taken over.
pub(crate) const WRITE_PAYLOADS: &str = "SELECT value FROM write WHERE checkpoint = ?1 AND typeof(value) = 'integer'";
pub(crate) const RECLAIM_NAMES: &str = "SELECT name FROM name_user WHERE thread = ?1 LIMIT ?2";
pub(crate) const NAME_DELETE: &str =
    "DELETE FROM name WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM name_user WHERE name = ?1)";
pub(crate) const NAMES_ERASED: &str = "UPDATE high_water SET names_erased = names_erased + 1 WHERE id = 0";

/// The blobs of a payload, and the bytes that are in its row.
pub(crate) const PAYLOAD_BLOBS: &str = "SELECT CASE typeof(data) WHEN 'integer' THEN data END, \
     CASE typeof(text) WHEN 'integer' THEN text END, length(data) + coalesce(length(text), 0) FROM payload WHERE id = ?1";
pub(crate) const BLOB_BYTES: &str = "SELECT length(data) FROM blob WHERE id = ?1";
pub(crate) const BLOB_DELETE: &str = "DELETE FROM blob WHERE id = ?1 \
     AND NOT EXISTS (SELECT 1 FROM payload WHERE typeof(data) = 'integer' AND data = ?1) \
     AND NOT EXISTS (SELECT 1 FROM payload WHERE typeof(text) = 'integer' AND text = ?1)";

pub(crate) const KV_NAMESPACE: &str = "SELECT id FROM kv_namespace WHERE path = ?1";
pub(crate) const KV_NAMESPACE_INSERT: &str = "INSERT INTO kv_namespace (path) VALUES (?1)";
/// A namespace goes with its last key.
pub(crate) const KV_NAMESPACE_DELETE: &str =
    "DELETE FROM kv_namespace WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM kv WHERE namespace = ?1)";
/// The namespaces, each with the number of its keys in either index.
macro_rules! kv_namespaces {
    ($($where:literal)?) => {
        concat!(
            "SELECT n.id, n.path, (SELECT count(*) FROM kv k INDEXED BY kv_order WHERE k.namespace = n.id), \
             (SELECT count(*) FROM kv k INDEXED BY kv_key WHERE k.namespace = n.id) FROM kv_namespace n ",
            $($where,)?
            "ORDER BY n.id"
        )
    };
}
pub(crate) const KV_NAMESPACES: &str = kv_namespaces!();
/// Those at a path and inside it: the paths that go on with a dot lie between two bounds.
pub(crate) const KV_NAMESPACES_UNDER: &str = kv_namespaces!("WHERE n.path = ?1 OR (n.path > ?2 AND n.path < ?3) ");
pub(crate) const KV_PLACE: &str = "SELECT id, created_at, expires_at FROM kv WHERE namespace = ?1 AND key = ?2";
/// The columns of a row in their order; SQLite gives a new one its number.
pub(crate) const KV_INSERT: &str = "INSERT INTO kv (namespace, key, created_at, updated_at, expires_at, xxh3, codec, \
     data) VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
pub(crate) const KV_UPDATE: &str =
    "UPDATE kv SET updated_at = ?5, expires_at = ?6, xxh3 = ?7, codec = ?8, data = ?9 WHERE id = ?1";
pub(crate) const KV_EXPIRED: &str =
    "SELECT id, namespace FROM kv WHERE expires_at IS NOT NULL AND expires_at <= ?1 ORDER BY expires_at LIMIT ?2";
/// The columns of an entry, and the path of its namespace.
macro_rules! kv {
    () => {
        $crate::store::sqlite::tables::text::text!(
            "SELECT ",
            $crate::store::sqlite::tables::text::columns!(kv, "k."),
            ", n.path "
        )
    };
}
pub(crate) use kv;
pub(crate) const KV_ENTRY: &str =
    text!(kv!(), "FROM kv_namespace n JOIN kv k ON k.namespace = n.id WHERE n.path = ?1 AND k.key = ?2");
pub(crate) const KV_ENTRIES: &str = text!(
    kv!(),
    "FROM kv k JOIN kv_namespace n ON n.id = k.namespace WHERE k.namespace = ?1 \
     ORDER BY k.id"
);
pub(crate) const CHECK_KV: &str =
    text!(kv!(), "FROM kv k LEFT JOIN kv_namespace n ON n.id = k.namespace ORDER BY k.id");

/// The statements of most reads, prepared when a handle is opened.
pub(crate) const READ_OFTEN: [&str; 18] = [
    BEGIN_READ,
    COMMIT,
    NAMESPACE_BY_PATH,
    RECORD_HEAD,
    FIELD_CHANGE,
    RECORD_AT,
    PAST,
    branch::Row::BY_KEY,
    NAME_BY_TEXT,
    name::Row::BY_KEY,
    VERSIONS_OF_SPAN,
    DELETED_RANGES,
    ITEMS_BACKWARDS,
    ITEMS_JOINED,
    payload::Row::BY_KEY,
    neighbors::WRITES_BELOW,
    neighbors::WRITES_FROM,
    write::Row::UNDER,
];

pub(crate) const INTEGRITY: &str = "PRAGMA integrity_check(100)";
/// A read of each index, as a query: the integrity check does not open those of a table without rows.
pub(crate) const INDEX_READS: &str = "SELECT printf('SELECT 1 FROM \"%w\" INDEXED BY \"%w\" %s LIMIT 1', tbl_name, name, \
     iif(instr(sql, 'WHERE') > 0, substr(sql, instr(sql, 'WHERE')), '')) FROM sqlite_schema WHERE type = 'index'";
/// The namespaces, and the branches, of deleted threads whose rows are still stored.
macro_rules! hidden {
    (namespaces) => {
        "(SELECT hn.id FROM tombstone d CROSS JOIN namespace hn ON hn.thread = d.thread)"
    };
    (branches) => {
        "(SELECT hb.id FROM tombstone d CROSS JOIN namespace hn ON hn.thread = d.thread \
         CROSS JOIN branch hb ON hb.namespace = hn.id)"
    };
}
pub(crate) const CHECK_BRANCHES: &str = concat!(
    "SELECT b.id, b.namespace, b.parent, b.upto, b.depth, b.fork_thread, b.fork_checkpoint, b.xxh3, p.depth, n.thread, \
     pn.thread, c.branch, c.ordinal FROM branch b LEFT JOIN branch p ON p.id = b.parent \
     LEFT JOIN namespace n ON n.id = b.namespace LEFT JOIN namespace pn ON pn.id = p.namespace \
     LEFT JOIN checkpoint c ON c.seq = b.fork_checkpoint WHERE b.id >= ?1 AND b.namespace NOT IN ",
    hidden!(namespaces),
    " ORDER BY b.id"
);
pub(crate) const CHECK_RECORDS: &str = record!("checkpoint c", "WHERE c.seq >= ?1 ORDER BY c.seq");
pub(crate) const CHECK_IDS: &str = "SELECT seq, namespace, id FROM checkpoint WHERE seq >= ?1 ORDER BY seq";
/// The newest id of a namespace before a checkpoint of the log.
pub(crate) const CHECK_ID_BEFORE: &str =
    "SELECT id FROM checkpoint WHERE namespace = ?1 AND seq < ?2 ORDER BY prefix DESC, seq DESC LIMIT 1";
/// Places are sorted without the rows. The limit keeps their order.
pub(crate) const CHECK_CHECKPOINTS: &str = record!("(SELECT seq AS at FROM checkpoint WHERE seq >= ?1 ORDER BY branch, ordinal LIMIT -1) s \
         CROSS JOIN checkpoint c ON c.seq = s.at CROSS JOIN branch b ON b.id = c.branch AND b.namespace = c.namespace"; ", b.parent, b.upto");
/// One of them.
pub(crate) const CHECK_CHECKPOINT: &str = record!("checkpoint c CROSS JOIN branch b ON b.id = c.branch AND b.namespace = c.namespace", "WHERE c.seq = ?1"; ", b.parent, b.upto");
/// The columns of rows of a checkpoint, in the order in which a check decodes them.
macro_rules! checked {
    (write) => {
        select!(write as w, ", c.seq - c.parent FROM write w LEFT JOIN checkpoint c ON c.seq = w.checkpoint + w.child ")
    };
}
pub(crate) const CHECK_VERSIONS: &str =
    text!(version::Row::SELECT, "WHERE branch NOT IN ", hidden!(branches), " ORDER BY branch, ordinal, key");
pub(crate) const VERSIONS_AT: &str = text!(version::Row::SELECT, "WHERE branch = ?1 AND ordinal = ?2 ORDER BY key");
pub(crate) const CHECK_ITEMS: &str =
    text!(item::Row::SELECT, "WHERE branch NOT IN ", hidden!(branches), " ORDER BY branch, ordinal, channel, slot");
pub(crate) const CHECK_ITEMS_AT: &str = text!(
    item::Row::SELECT,
    "WHERE branch = ?1 AND channel = ?2 AND ordinal = ?3 AND slot BETWEEN ?4 AND ?5 ORDER BY slot"
);
pub(crate) const CHECK_CONSUMED: &str =
    text!(write::Row::SELECT, "WHERE checkpoint = ?1 AND child = ?2 - ?1 AND idx >= 0");
pub(crate) const CHECK_WRITES: &str = text!(
    checked!(write),
    "LEFT JOIN checkpoint o ON o.seq = w.checkpoint WHERE o.seq IS NULL OR o.namespace NOT IN ",
    hidden!(namespaces),
    " ORDER BY w.checkpoint, w.task, w.idx, w.part"
);
pub(crate) const CHECK_WRITES_OF: &str =
    text!(checked!(write), "WHERE w.checkpoint = ?1 ORDER BY w.task, w.idx, w.part");
/// The greatest ids of the log.
pub(crate) const CHECK_POINT: &str = "SELECT (SELECT coalesce(max(seq), 0) FROM checkpoint), \
     (SELECT coalesce(max(id), 0) FROM branch), (SELECT coalesce(max(id), 0) FROM payload), \
     (SELECT coalesce(max(id), 0) FROM blob)";
pub(crate) const CHECKPOINT_CHECKSUM: &str = "SELECT sum FROM checkpoint WHERE seq = ?1";
pub(crate) const CHECKPOINT_HIGH_WATER: &str = "SELECT coalesce(max(checkpoint), 0) FROM high_water";
/// The threads whose time is not that of their first checkpoint, which a checksum covers.
pub(crate) const CHECK_THREAD_TIMES: &str = "SELECT t.id FROM thread t WHERE t.created_at IS NOT \
     (SELECT c.created_at FROM checkpoint c JOIN namespace n ON n.id = c.namespace WHERE n.thread = t.id \
      ORDER BY c.seq LIMIT 1)";
/// Checkpoints from one of the log on that belong to nothing.
macro_rules! stray_checkpoints {
    () => {
        concat!(
            "SELECT count(*) FROM checkpoint c LEFT JOIN namespace n ON n.id = c.namespace \
             LEFT JOIN thread t ON t.id = n.thread LEFT JOIN branch b ON b.id = c.branch AND b.namespace = c.namespace \
             WHERE (t.id IS NULL OR b.id IS NULL) AND c.namespace NOT IN ",
            hidden!(namespaces)
        )
    };
}
pub(crate) const CHECK_CHECKPOINTS_OWNED: &str = concat!(stray_checkpoints!(), " AND c.seq >= ?1");
/// Rows that belong to nothing, beside those that follow from the descriptions of the tables.
pub(crate) const CHECK_ORPHANS: [(&str, &str); 6] = [
    (
        "timer",
        "SELECT count(*) FROM timer r WHERE NOT EXISTS \
         (SELECT 1 FROM checkpoint c WHERE c.seq = r.checkpoint AND c.namespace = r.namespace) AND NOT EXISTS \
         (SELECT 1 FROM namespace n JOIN tombstone d ON d.thread = n.thread WHERE n.id = r.namespace)",
    ),
    (
        "tombstone",
        "SELECT count(*) FROM tombstone WHERE state NOT IN (0, 1) OR thread IN (SELECT id FROM thread) \
         OR (state = 1 AND thread IN (SELECT thread FROM namespace))",
    ),
    (
        "name_user",
        "SELECT count(*) FROM name_user WHERE thread <> 0 AND thread NOT IN (SELECT id FROM thread) \
         AND thread NOT IN (SELECT thread FROM tombstone)",
    ),
    (
        "payload with columns that its sum does not cover",
        "SELECT count(*) FROM payload WHERE (form & 1 = 0 AND coalesce(item_id, kind, text) IS NOT NULL) \
         OR (form & 2 = 0 AND coalesce(name, tool_calls, input_tokens, output_tokens) IS NOT NULL)",
    ),
    ("checkpoint", stray_checkpoints!()),
    (
        "branch",
        concat!(
            "SELECT count(*) FROM branch WHERE id NOT IN (SELECT branch FROM checkpoint) AND namespace NOT IN ",
            hidden!(namespaces)
        ),
    ),
];
/// The rows of a list that a checkpoint wrote, among some positions.
pub(crate) const ITEMS_WRITTEN: &str = "SELECT slot, op, value FROM item WHERE branch = ?1 AND channel = ?2 \
     AND slot BETWEEN ?3 AND ?4 AND ordinal = ?5 ORDER BY slot";

#[cfg(test)]
pub(crate) const DUMP: &str = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid";
#[cfg(test)]
pub(crate) const OBJECT_NAMES: &str = "SELECT name FROM sqlite_schema WHERE type = ?1";
#[cfg(test)]
pub(crate) const TRIGGERS: &str = "SELECT sql FROM sqlite_schema WHERE type = 'trigger'";
#[cfg(test)]
pub(crate) const TABLE_COLUMNS: &str = "SELECT name, type, \"notnull\", pk FROM pragma_table_info(?1)";
