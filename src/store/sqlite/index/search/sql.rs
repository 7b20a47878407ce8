//! The SQL of searches.

use crate::store::sqlite::tables::text::{columns, text};

/// The objects of the index. They exist while a store is indexed.
pub(crate) const SCHEMA: &str = include_str!("../../../../../schema/sqlite/search.sql");
/// True if the linked SQLite has the module that makes the index.
pub(crate) const HAS_FTS5: &str = "SELECT EXISTS (SELECT 1 FROM pragma_module_list WHERE name = 'fts5')";
/// Their names, with those of the tables that FTS5 makes.
pub(crate) const OBJECTS: [&str; 7] = [
    "search_state",
    "search_erase",
    "search_put",
    "search_text",
    "search_text_data",
    "search_text_idx",
    "search_text_config",
];
/// Deleted entries leave no bytes.
pub(super) const ERASE_DELETED: &str = "INSERT INTO search_text (search_text, rank) VALUES ('secure-delete', 1)";
/// Removes all entries. The table is then made again by the last statement of the schema.
pub(super) const EMPTY: &str =
    "DROP TABLE search_text; DELETE FROM search_erase; UPDATE search_state SET next = 0 WHERE id = 0;";
pub(super) const DROP: &str =
    "DROP TABLE search_text; DROP INDEX search_put; DROP TABLE search_erase; DROP TABLE search_state;";

pub(super) const IS_ON: &str = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'search_state')";
pub(super) const STATE: &str = "SELECT next, unsealed FROM search_state WHERE id = 0";
pub(super) const STATE_INSERT: &str = "INSERT INTO search_state (id, next, unsealed) VALUES (0, 0, ?1)";
pub(super) const STATE_UPDATE: &str = "UPDATE search_state SET next = ?1 WHERE id = 0";

pub(super) const ENTRY_INSERT: &str = "INSERT INTO search_text (rowid, grams) VALUES (?1, ?2)";
pub(super) const ENTRY_DELETE: &str = "INSERT INTO search_text (search_text, rowid, grams) VALUES ('delete', ?1, ?2)";
/// The entries with all tokens, from one on downwards.
pub(super) const ENTRIES: &str =
    "SELECT rowid FROM search_text WHERE search_text MATCH ?1 AND rowid <= ?2 ORDER BY rowid DESC";

/// The checkpoints from one of the log on, each with its thread, or NULL if that is deleted or its namespace is lost.
pub(super) const CHECKPOINTS_FROM: &str = "SELECT c.seq, c.branch, c.ordinal, t.id FROM checkpoint c \
     LEFT JOIN namespace n ON n.id = c.namespace LEFT JOIN thread t ON t.id = n.thread WHERE c.seq >= ?1 ORDER BY c.seq";
/// The checkpoints of a period of the log, the newest first.
pub(super) const CHECKPOINTS_DOWN: &str =
    "SELECT seq, branch, ordinal FROM checkpoint WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq DESC";
/// The puts of a checkpoint: the index has all columns.
pub(super) const PUTS_AT: &str = "SELECT branch, channel, slot, ordinal FROM item INDEXED BY search_put \
     WHERE op = 1 AND branch = ?1 AND ordinal = ?2";

pub(super) const ERASE_INSERT: &str =
    "INSERT INTO search_erase (thread, next, namespace, checkpoint, part) VALUES (?1, ?2, 0, X'', 0)";
pub(super) const ERASE_NEXT: &str = "SELECT next, namespace, checkpoint, part FROM search_erase WHERE thread = ?1";
pub(super) const ERASE_UPDATE: &str =
    "UPDATE search_erase SET namespace = ?2, checkpoint = ?3, part = ?4 WHERE thread = ?1";
pub(super) const ERASE_DELETE: &str = "DELETE FROM search_erase WHERE thread = ?1";
pub(super) const ERASE_NAMESPACE: &str = "SELECT min(id) FROM namespace WHERE thread = ?1 AND id > ?2";
pub(super) const ERASE_CHECKPOINT: &str = "SELECT id, seq, branch, ordinal FROM checkpoint \
     WHERE namespace = ?1 AND prefix >= coalesce(substr(?2, 1, 6), X'') AND id >= ?2 ORDER BY prefix, seq LIMIT 1";
pub(super) const ERASE_STRAY: &str =
    "SELECT count(*) FROM search_erase WHERE thread NOT IN (SELECT thread FROM tombstone WHERE state = 0)";

/// The branches whose rows are read: those of one thread, or of all. A deleted thread has no row.
macro_rules! branches {
    ($($where:literal)?) => {
        concat!(
            "SELECT b.id, n.id FROM thread t CROSS JOIN namespace n ON n.thread = t.id \
             CROSS JOIN branch b ON b.namespace = n.id ",
            $($where,)?
            "ORDER BY b.id DESC"
        )
    };
}
pub(super) const BRANCHES: &str = branches!();
pub(super) const BRANCHES_OF_THREAD: &str = branches!("WHERE t.public_id = ?1 ");

/// The first place of a branch from an ordinal on at which a channel was written.
pub(super) const SHOWN_AT: &str =
    "SELECT ordinal FROM version WHERE branch = ?1 AND ordinal >= ?2 AND key = ?3 ORDER BY ordinal LIMIT 1";
/// The values that a checkpoint gave to channels.
pub(super) const VALUES_AT: &str = "SELECT key FROM version WHERE branch = ?1 AND ordinal = ?2 AND kind & 15 = 1";

/// The columns of a put, and those of its payload, which an inline value does not have.
macro_rules! put {
    ($tail:literal) => {
        text!(
            "SELECT ",
            columns!(item, "i."),
            ", ",
            columns!(payload, "p."),
            " FROM item i LEFT JOIN payload p ON p.id = i.value WHERE i.op = 1 AND ",
            $tail
        )
    };
}
/// The puts of a branch.
pub(super) const PUTS_OF_BRANCH: &str = put!("i.branch = ?1");
/// One put.
pub(super) const PUT: &str = put!("i.branch = ?1 AND i.channel = ?2 AND i.slot = ?3 AND i.ordinal = ?4");
/// The checkpoints of a branch: ordinal and `seq`.
pub(super) const CHECKPOINTS_OF_BRANCH: &str =
    "SELECT ordinal, seq FROM checkpoint WHERE namespace = ?1 AND branch = ?2";
