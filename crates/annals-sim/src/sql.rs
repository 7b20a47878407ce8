//! The SQL of the application whose table lies in the file.

pub(crate) const LEDGER: &str = "CREATE TABLE IF NOT EXISTS app_ledger (actor TEXT, number INTEGER, text TEXT)";
pub(crate) const LEDGER_INSERT: &str = "INSERT INTO app_ledger VALUES (?1, ?2, ?3)";
pub(crate) const LEDGER_CLEAR: &str = "UPDATE app_ledger SET text = '' WHERE actor = ?1 AND number = ?2 - 1";
pub(crate) const LEDGER_ROWS: &str = "SELECT actor, number, text FROM app_ledger ORDER BY number";

/// The store of another program in WAL mode, which stays open.
pub(crate) const STRANGER: &str = "PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0; \
     CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT); \
     WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) \
     INSERT INTO notes SELECT i, printf('note %d of another program', i) FROM n";
/// Writes every page of a file into its log.
pub(crate) const REWRITE: &str = "PRAGMA wal_autocheckpoint = 0; VACUUM";
pub(crate) const COPY_LOG: &str = "PRAGMA wal_checkpoint(TRUNCATE)";
