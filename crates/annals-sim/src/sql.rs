//! The SQL of the application whose table lies in the file.

pub(crate) const LEDGER: &str = "CREATE TABLE IF NOT EXISTS app_ledger (actor TEXT, number INTEGER, text TEXT)";
pub(crate) const LEDGER_INSERT: &str = "INSERT INTO app_ledger VALUES (?1, ?2, ?3)";
pub(crate) const LEDGER_CLEAR: &str = "UPDATE app_ledger SET text = '' WHERE actor = ?1 AND number = ?2 - 1";
pub(crate) const LEDGER_ROWS: &str = "SELECT actor, number, text FROM app_ledger ORDER BY number";
