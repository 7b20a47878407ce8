//! The databases of LangGraph's SQLite saver, read and written.
//!
//! *Absent:* the meaning of a checkpoint; rows become [`SaverCheckpoint`](crate::SaverCheckpoint)s and come from
//! [`Tuple`](crate::Tuple)s.

mod export;
mod import;
mod items;
mod suffix;

pub use export::{DatabaseExport, export_sqlite};
pub use import::{DatabaseImport, RefusedRow, import_database, import_sqlite, is_langgraph};
