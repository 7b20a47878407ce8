//! Writes threads into a database of `langgraph-checkpoint-sqlite`, which LangGraph continues.
//!
//! Invariant: a file that is there is not written to, and one that could not be written whole is removed. *Absent:* the
//! key-value memory.

use std::fs;
use std::path::Path;

use annals::rusqlite::{Connection, OpenFlags, params};
use annals_base::Value;

use super::suffix::LineageVersions;
use crate::{ListQuery, Result, Saver, SaverError, Tuple, Typed};

/// The tables as the saver makes them.
const SCHEMA: &str = "
    CREATE TABLE checkpoints (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '',
        checkpoint_id TEXT NOT NULL, parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB,
        PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
    CREATE TABLE writes (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
        task_id TEXT NOT NULL, task_path TEXT NOT NULL DEFAULT '', idx INTEGER NOT NULL, channel TEXT NOT NULL,
        type TEXT, value BLOB, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));";

/// The counts of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatabaseExport {
    /// Threads with a checkpoint.
    pub threads: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Writes of tasks.
    pub writes: u64,
}

/// Writes threads into a new database of LangGraph's SQLite saver. Versions that were written on a later branch of a
/// thread get a suffix, so that a version names one value, as other savers expect. `progress` is told the summary so
/// far after each checkpoint.
///
/// # Errors
/// [`SaverError::Target`] if the file exists or cannot be written; [`SaverError::Unsupported`] for a channel that
/// LangGraph's values do not express; [`SaverError::Store`].
pub fn export_sqlite<'t>(
    saver: &Saver,
    threads: impl IntoIterator<Item = &'t str>,
    path: &Path,
    progress: impl FnMut(&DatabaseExport),
) -> Result<DatabaseExport> {
    let failed = |error: &dyn std::fmt::Display| SaverError::Target { path: path.into(), reason: error.to_string() };
    // The name is taken before anything is written under it.
    fs::File::create_new(path).map_err(|error| failed(&error))?;
    let written = write(saver, threads, path, progress, &failed);
    if written.is_err() {
        _ = fs::remove_file(path);
    }
    written
}

fn write<'t>(
    saver: &Saver,
    threads: impl IntoIterator<Item = &'t str>,
    path: &Path,
    mut progress: impl FnMut(&DatabaseExport),
    failed: &dyn Fn(&dyn std::fmt::Display) -> SaverError,
) -> Result<DatabaseExport> {
    let mut connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(|e| failed(&e))?;
    let transaction = connection.transaction().map_err(|error| failed(&error))?;
    transaction.execute_batch(SCHEMA).map_err(|error| failed(&error))?;
    let mut summary = DatabaseExport::default();
    for thread in threads {
        let before = summary.checkpoints;
        let mut lineage = LineageVersions::default();
        let mut listing = saver.list(ListQuery::of_thread(thread))?;
        while let Some(tuple) = listing.next() {
            let mut tuple = tuple?;
            if let Some(at) = listing.last_place() {
                lineage.rename(&**saver.store().backend(), at, &mut tuple)?;
            }
            row(&transaction, &tuple, tuple.to_value()?).map_err(|error| failed(&error))?;
            summary.checkpoints += 1;
            summary.writes += tuple.writes.len() as u64;
            progress(&summary);
        }
        summary.threads += u64::from(summary.checkpoints > before);
    }
    transaction.commit().map_err(|error| failed(&error))?;
    // SQLite has synced the file; its name is synced with the folder.
    #[cfg(unix)]
    if let Some(folder) = path.parent() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| failed(&error))?;
    }
    Ok(summary)
}

fn row(connection: &Connection, tuple: &Tuple, checkpoint: Typed) -> annals::rusqlite::Result<()> {
    let (thread, namespace) = (&tuple.config.thread, &tuple.config.namespace);
    let id = tuple.config.checkpoint.as_deref().unwrap_or_default();
    let parent = tuple.parent.as_ref().and_then(|parent| parent.checkpoint.as_deref());
    let metadata = python_json(&Value::Map(tuple.metadata.clone()));
    let mut statement = connection.prepare_cached("INSERT INTO checkpoints VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
    statement.execute(params![thread, namespace, id, parent, checkpoint.tag, checkpoint.bytes, metadata.as_bytes()])?;
    let mut statement = connection.prepare_cached("INSERT INTO writes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?;
    for write in &tuple.writes {
        let value = &write.value;
        statement.execute(params![
            thread,
            namespace,
            id,
            write.task,
            write.path,
            write.index,
            &*write.channel,
            value.tag,
            value.bytes
        ])?;
    }
    Ok(())
}

/// Returns metadata as Python writes them: floats that JSON lacks have names there.
fn python_json(value: &Value) -> String {
    match value {
        Value::Float(number) if number.is_nan() => "NaN".into(),
        Value::Float(number) if number.is_infinite() => if *number > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        Value::List(items) => format!("[{}]", items.iter().map(python_json).collect::<Vec<_>>().join(", ")),
        Value::Map(map) => {
            let member = |(name, value): (&String, &Value)| {
                format!("{}: {}", serde_json::Value::from(name.as_str()), python_json(value))
            };
            format!("{{{}}}", map.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        value => value.to_json().to_string(),
    }
}
