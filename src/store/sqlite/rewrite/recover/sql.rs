//! The statements of a recovery.

use crate::store::sqlite::sql::kv;
use crate::store::sqlite::tables::text::text;

/// The words of statements that make neither a table nor an index.
pub(super) const NO_TABLE_OR_INDEX: [&str; 2] = ["TRIGGER", "CREATE VIEW"];
/// Adds a row to those of a damaged table, unless one with its key was found before.
pub(super) const COLLECT: &str = "INSERT OR IGNORE INTO {table} VALUES ({places})";
/// Makes the tables of the damaged file visible, behind those that were collected.
pub(super) const ATTACH: &str = "ATTACH DATABASE ?1 AS store";
/// Copies the rows of a table to a file that has all of its columns.
pub(super) const COPY: &str = "INSERT OR IGNORE INTO main.{table} ({columns}) SELECT {columns} FROM {from}.{table}";
/// True if a tree that SQLite reads is as it must be.
pub(super) const QUICK_CHECK: &str = "PRAGMA quick_check(1)";

/// Lets a schema be read that does not parse, and be written.
pub(super) const WRITABLE_SCHEMA: &str = "PRAGMA writable_schema = ON";
/// Returns 1 if a checkpoint was pruned.
pub(super) const HAS_PRUNED: &str = "SELECT EXISTS (SELECT 1 FROM checkpoint WHERE source < 0)";
pub(super) const ROOTS: &str = "SELECT name, rootpage, type FROM sqlite_schema WHERE rootpage > 1";
pub(super) const SCHEMA_ROW: &str =
    "INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql) VALUES ('table', ?1, ?1, ?2, ?3)";
/// Nothing is synced: the file is a scratch one, which does not outlive the call.
pub(super) const SCRATCH_FILE: &str =
    "PRAGMA page_size = 4096; PRAGMA auto_vacuum = NONE; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;";
pub(super) const READ_STRICTLY: &str = "PRAGMA query_only = ON; PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0;";

pub(super) const THREADS_FROM: &str = "SELECT id, public_id FROM thread WHERE id >= ?1 ORDER BY id LIMIT ?2";
pub(super) const ENTRIES_FROM: &str =
    text!(kv!(), "FROM kv k LEFT JOIN kv_namespace n ON n.id = k.namespace WHERE k.id >= ?1 ORDER BY k.id LIMIT ?2");
/// The checkpoints whose versions are there and whose rows are not. The version with the greatest key of a checkpoint
/// holds its `seq`.
pub(super) const MISSING_SEQS: &str = "SELECT DISTINCT (v.kind >> 4) + v.ordinal + 1 AS seq FROM version v \
     JOIN branch b ON b.id = v.branch JOIN namespace n ON n.id = b.namespace JOIN thread t ON t.id = n.thread \
     WHERE typeof(v.xxh3) = 'integer' AND NOT EXISTS \
     (SELECT 1 FROM checkpoint c WHERE c.seq = (v.kind >> 4) + v.ordinal + 1) ORDER BY seq LIMIT ?1";
