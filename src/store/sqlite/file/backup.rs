//! A copy of a store while it is used.
//!
//! SQLite writes the copy from one snapshot, without the pages that are free. It does not sync the copy, so that is
//! done here, and the copy gets its name only then. *Absent:* the file that is copied stays as it is.

use super::open;
use super::paths::beside;
use super::place::FilePlace;
use super::system;
use super::wal_mark::{MarkState, WalMark};
use crate::store::error::StoreError;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::sql;
use rusqlite::limits::Limit;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Copies the store at `place` to a new file.
pub(crate) fn backup(place: &FilePlace, to: &Path) -> Res<()> {
    if to.symlink_metadata().is_ok() {
        return Err(failed(to, io::ErrorKind::AlreadyExists.into()).into());
    }
    let unfinished = beside(to, UNFINISHED);
    system::create_new(&unfinished).map_err(|error| failed(&unfinished, error))?;
    let published = || publish(&unfinished, to).map_err(|error| failed(to, error));
    let copied = copy(place, &unfinished).and_then(|()| Ok(published()?));
    if copied.is_err() {
        // The first error is reported.
        _ = fs::remove_file(&unfinished);
    }
    copied
}

fn copy(place: &FilePlace, to: &Path) -> Res<()> {
    let conn = open::connect_copier(place)?;
    open::verify(place, &conn)?;
    // SQLite attaches the copy to the connection.
    conn.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 1)?;
    let name = to.to_str().ok_or_else(|| refused(to, "it is not UTF-8"))?;
    conn.prepare(sql::COPY_INTO)?.execute([name])?;
    renew_mark(to)
}

/// Gives a copy a mark of its own: no log of the file that was copied continues it.
fn renew_mark(copy: &Path) -> Res<()> {
    let conn = open::connect_plain(copy)?;
    // The copy is synced, or removed, as a whole.
    conn.execute_batch(sql::UNSAFE_JOURNAL)?;
    conn.execute_batch(sql::BEGIN_WRITE)?;
    WalMark::replace(&conn, MarkState::Whole, false)?;
    conn.execute_batch(sql::COMMIT)?;
    Ok(())
}

/// The ending of a file that is being written.
pub(crate) const UNFINISHED: &str = "-unfinished";

/// Gives a copy its name once its bytes are on the disk. A file that has the name meanwhile stays. A process that ends
/// between the two names leaves both; the next one that opens the file takes the first one away.
pub(crate) fn publish(unfinished: &Path, to: &Path) -> io::Result<()> {
    File::open(unfinished)?.sync_all()?;
    fs::hard_link(unfinished, to)?;
    let named = end_name(unfinished);
    if named.is_err() {
        // The name may not last, so the error is true only without it.
        _ = fs::remove_file(to);
    }
    named
}

/// Takes away the first name of a copy.
fn end_name(unfinished: &Path) -> io::Result<()> {
    match fs::remove_file(unfinished) {
        // Another process opened the copy and did so.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed?,
    }
    let folder = unfinished.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    system::sync_folder(folder)
}

pub(crate) fn failed(path: &Path, error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::AlreadyExists => refused(path, "it exists already"),
        _ => refused(path, &error.to_string()),
    }
}

fn refused(to: &Path, reason: &str) -> StoreError {
    StoreError::Invalid { field: "path of the backup", reason: format!("{}: {reason}", to.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_a_copy_may_be_gone_already() {
        let folder = tempfile::tempdir().unwrap();
        let [unfinished, to] = ["x-unfinished", "x"].map(|name| folder.path().join(name));
        fs::write(&unfinished, b"x").unwrap();
        publish(&unfinished, &to).unwrap();
        assert!(to.exists() && !unfinished.exists());
        end_name(&unfinished).unwrap();
        fs::create_dir(&unfinished).unwrap();
        end_name(&unfinished).unwrap_err();
    }
}
