//! A copy of a store while it is used.
//!
//! SQLite writes the copy from one snapshot, without the pages that are free. It does not sync the copy, so that is
//! done here, and the copy gets its name only then. *Absent:* the file that is copied stays as it is.

use super::fault::Res;
use super::open::{self, FilePlace, beside};
use super::{sql, system};
use crate::store::error::StoreError;
use rusqlite::limits::Limit;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Copies the store at `place` to a new file.
pub(super) fn backup(place: &FilePlace, to: &Path) -> Res<()> {
    copy_of_format(place, to, sql::FORMAT)
}

/// Copies the store at `place`, which has the given format, to a new file.
pub(super) fn copy_of_format(place: &FilePlace, to: &Path, format: i64) -> Res<()> {
    if to.symlink_metadata().is_ok() {
        return Err(failed(to, io::ErrorKind::AlreadyExists.into()).into());
    }
    let unfinished = beside(to, "-unfinished");
    system::create_new(&unfinished).map_err(|error| failed(&unfinished, error))?;
    let published = || publish(&unfinished, to).map_err(|error| failed(to, error));
    let copied = copy(place, &unfinished, format).and_then(|()| Ok(published()?));
    if copied.is_err() {
        // The first error is reported.
        _ = fs::remove_file(&unfinished);
    }
    copied
}

fn copy(place: &FilePlace, to: &Path, format: i64) -> Res<()> {
    let conn = open::connect_copier(place)?;
    open::verify_format(place, &conn, format)?;
    // SQLite attaches the copy to the connection.
    conn.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 1)?;
    let name = to.to_str().ok_or_else(|| refused(to, "it is not UTF-8"))?;
    conn.prepare(sql::COPY_INTO)?.execute([name])?;
    Ok(())
}

/// Gives a copy its name once its bytes are on the disk. A file that has the name meanwhile stays.
pub(super) fn publish(unfinished: &Path, to: &Path) -> io::Result<()> {
    File::open(unfinished)?.sync_all()?;
    fs::hard_link(unfinished, to)?;
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let named = fs::remove_file(unfinished).and_then(|()| system::sync_folder(folder));
    if named.is_err() {
        // The name may not last, so the error is true only without it.
        _ = fs::remove_file(to);
    }
    named
}

pub(super) fn failed(path: &Path, error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::AlreadyExists => refused(path, "it exists already"),
        _ => refused(path, &error.to_string()),
    }
}

fn refused(to: &Path, reason: &str) -> StoreError {
    StoreError::Invalid { field: "path of the backup", reason: format!("{}: {reason}", to.display()) }
}
