//! The statements of migrations.

/// The schema of format 1.
pub(crate) const FORMAT_1: &str = include_str!("../../../../../schema/sqlite/0001_init.sql");
pub(crate) const FINISH_1: &str = "PRAGMA application_id = 1634627180; PRAGMA user_version = 1;";

/// Replaces the tables of the log of format 1.
pub(crate) const FORMAT_2: &str = include_str!("../../../../../schema/sqlite/0002_rows.sql");
pub(crate) const FINISH_2: &str = "PRAGMA user_version = 2;";

/// The size of the pages of a new file.
pub(crate) const SET_PAGE_BYTES: &str = "PRAGMA page_size = 4096;";

/// Temporary files instead of memory, for as much as the whole file may need.
pub(super) const TEMPORARY_FILES: &str = "PRAGMA temp_store = FILE";
/// Writes the whole file anew.
pub(super) const REWRITE: &str = "PRAGMA auto_vacuum = INCREMENTAL; VACUUM;";
