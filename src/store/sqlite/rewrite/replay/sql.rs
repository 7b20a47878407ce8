//! The statements by which rows are read to be written anew.

use crate::store::sqlite::sql::run_of;
use crate::store::sqlite::tables::sql::select;
use crate::store::sqlite::tables::text::text;
use crate::store::sqlite::tables::{TableRow, item, operation, operation_change, version};

/// The rows of lists in the order of the checkpoints, in a temporary file.
pub(super) const ITEMS_TABLE: &str = "PRAGMA temp_store = FILE; PRAGMA journal_mode = OFF; CREATE TABLE item \
     (branch INTEGER, channel INTEGER, slot INTEGER, ordinal INTEGER, op INTEGER, task INTEGER, value, xxh3 INTEGER, \
     PRIMARY KEY (branch, ordinal, channel, slot)) WITHOUT ROWID; BEGIN;";
pub(super) const ITEMS_INSERT: &str = "INSERT OR IGNORE INTO item VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
pub(super) const ITEMS: &str =
    text!(item::Row::SELECT, "WHERE branch = ?1 AND ordinal = ?2 AND channel = ?3 ORDER BY slot");
pub(super) const ITEMS_FROM: &str =
    text!(item::Row::SELECT, "WHERE branch = ?1 AND channel = ?2 AND slot >= ?3 ORDER BY slot, ordinal DESC");

pub(super) const CHECKPOINTS_FROM: &str = select!(
    checkpoint as c,
    ", r.run, r.created_at FROM checkpoint c LEFT JOIN checkpoint r ON r.seq = ",
    run_of!(),
    "WHERE c.seq >= ?1 ORDER BY c.seq LIMIT ?2"
);
pub(super) const CHECKPOINT: &str = "SELECT namespace, id, tasks FROM checkpoint WHERE seq = ?1";
pub(super) const NAME: &str = "SELECT kind, text FROM name WHERE id = ?1";
pub(super) const LISTS_FROM: &str = "SELECT id, text FROM name WHERE id >= ?1 AND kind = ?3 ORDER BY id LIMIT ?2";
pub(super) const NAMESPACE: &str = "SELECT thread, path FROM namespace WHERE id = ?1";
/// True if the new file has a timer of a task with a check.
pub(super) const TIMER_VERIFIES: &str = "SELECT EXISTS (SELECT 1 FROM timer WHERE task = ?1 AND xxh3 = ?2)";
pub(super) const OPERATIONS: &str = text!(operation::Row::SELECT, "ORDER BY seq, id");
pub(super) const OPERATION_CHANGES: &str = operation_change::Row::SELECT;

/// The checksum of the checkpoint that was stored last.
pub(super) const LAST_CHECKSUM: &str = "SELECT sum FROM checkpoint ORDER BY seq DESC LIMIT 1";
/// Returns 1 if a run of writes with a checksum is stored.
pub(super) const RUN: &str = "SELECT EXISTS (SELECT 1 FROM write WHERE idx = ?4 AND sum = ?5 AND checkpoint = \
     (SELECT c.seq FROM thread t JOIN namespace n ON n.thread = t.id JOIN checkpoint c ON c.namespace = n.id \
      WHERE t.public_id = ?1 AND n.path = ?2 AND c.prefix = substr(?3, 1, 6) AND c.id = ?3))";

/// The checkpoints of the old file that were written anew: verified ones, and those of salvaged threads, whose channels
/// have the versions up to `version`.
pub(super) const PLACES_TABLE: &str = "CREATE TABLE place (branch INTEGER, ordinal INTEGER, seq INTEGER, thread TEXT, \
     path TEXT, id BLOB, version INTEGER, PRIMARY KEY (branch, ordinal)) WITHOUT ROWID; \
     CREATE INDEX place_seq ON place (seq)";
pub(super) const PLACE_INSERT: &str = "INSERT OR REPLACE INTO place (branch, ordinal, seq, thread, path, id, version) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
/// The last of these checkpoints of a branch, up to an ordinal.
pub(super) const PLACE_BEFORE: &str = "SELECT thread, path, id, version FROM place WHERE branch = ?1 AND ordinal <= ?2 \
     ORDER BY ordinal DESC LIMIT 1";
pub(super) const PLACES_OF_BRANCH: &str = "SELECT ordinal FROM place WHERE branch = ?1";
pub(super) const HAS_PLACE: &str = "SELECT EXISTS (SELECT 1 FROM place WHERE seq = ?1)";

/// The rows from which unverified content is read.
pub(super) const BRANCHES: &str = "SELECT branch FROM item UNION SELECT branch FROM version ORDER BY 1";
pub(super) const BRANCH_ROWS: &str = "SELECT id, namespace, parent, upto FROM branch";
pub(super) const CHECKPOINT_PLACES: &str = text!(
    "SELECT c.branch, c.ordinal, c.namespace, c.created_at + coalesce(r.created_at, 0), c.source FROM checkpoint c \
     LEFT JOIN checkpoint r ON r.seq = ",
    run_of!()
);
pub(super) const ITEMS_OF_BRANCH: &str = text!(item::Row::SELECT, "WHERE branch = ?1 ORDER BY ordinal, channel, slot");
pub(super) const VERSIONS_OF_BRANCH: &str = text!(version::Row::SELECT, "WHERE branch = ?1 ORDER BY ordinal, key");
pub(super) const IS_OF_DELETED: &str =
    "SELECT EXISTS (SELECT 1 FROM tombstone t JOIN namespace n ON n.thread = t.thread WHERE n.id = ?1)";
/// True if rows of deleted threads are still stored.
pub(super) const HAS_DELETED: &str = "SELECT EXISTS (SELECT 1 FROM tombstone WHERE thread > 0 AND state = 0)";
/// The payloads to which no list and no channel refers.
pub(super) const UNREFERENCED: &str = "SELECT id FROM payload WHERE id NOT IN \
     (SELECT value FROM item WHERE typeof(value) = 'integer' \
      UNION SELECT value FROM version WHERE typeof(value) = 'integer') ORDER BY id";
pub(super) const WRITTEN_PAYLOADS: &str = "SELECT value, checkpoint, child FROM write WHERE typeof(value) = 'integer'";
pub(super) const NAMESPACE_OF_SEQ: &str = "SELECT namespace FROM checkpoint WHERE seq = ?1";
