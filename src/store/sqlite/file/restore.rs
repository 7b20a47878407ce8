//! Puts a backup in the place of a store, and a log that does not continue its file out of the way.
//!
//! Nothing is deleted: a file at the path gets another name beside it, which the caller is told. *Absent:* the repair
//! of damaged content ([`recover`](crate::store::sqlite::rewrite::recover)).

use super::inspect::{FileKind, inspect};
use super::paths::{beside, cannot_open};
use super::wal_link::{self, LogLink};
use super::wal_mark::{MarkState, WalMark};
use super::{lock, registry, system};
use super::{open, paths};
use crate::limits::ASIDE_NAMES_MAX;
use crate::store::error::StoreError;
use crate::store::log::{FileStore as _, LogExt as _};
use crate::store::options::OpenOptions;
use crate::store::recovery::{Restored, WalReset};
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::{SqliteBackend, sql};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The ending of the copy of a backup that is about to get the name of the store.
const RESTORED: &str = "-restored";

/// Puts a verified copy of a backup at a path. See [`Store::restore`](crate::store::Store::restore).
pub(crate) fn restore(from: &Path, to: &Path, options: &OpenOptions) -> Result<Restored, StoreError> {
    let source = SqliteBackend::open(from, &options.clone().read_only(true))?;
    if let Some(reason) = source.missing_wal() {
        return Err(StoreError::LogMissing { path: from.into(), reason });
    }
    if let Some(problem) = source.check()?.problems.first() {
        return Err(StoreError::Corrupt { place: from.display().to_string(), reason: problem.to_string() });
    }
    let to = paths::absolute(to)?;
    refuse_open(&to)?;
    let copy = beside(&to, RESTORED);
    // One that an interrupted restore has left.
    remove_if_exists(&copy).map_err(|error| failed(&copy, error))?;
    source.backup(&copy)?;
    drop(source);
    let replaced = (|| {
        let put_aside = put_aside(&to)?;
        fs::rename(&copy, &to).map_err(|error| failed(&to, error))?;
        sync_folder_of(&to)?;
        Ok(put_aside)
    })();
    if replaced.is_err() {
        // The first error is reported.
        _ = fs::remove_file(&copy);
    }
    replaced.map(|put_aside| Restored { put_aside })
}

/// Gives the file at a path, and then its log, another name. The file keeps the first one until another file gets it:
/// a program that opened the path meanwhile would make an empty store.
fn put_aside(path: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut named = Vec::new();
    if fs::symlink_metadata(path).is_err() && fs::symlink_metadata(beside(path, "-wal")).is_err() {
        return Ok(named);
    }
    let aside = free_name(path)?;
    // Without the log first: the file alone says that it lacks it, and another file would be ruined by it.
    let log = beside(&aside, "-wal");
    if move_if_exists(&beside(path, "-wal"), &log)? {
        named.push(log);
    }
    for suffix in ["-shm", "-journal"] {
        _ = move_if_exists(&beside(path, suffix), &beside(&aside, suffix))?;
    }
    if fs::symlink_metadata(path).is_ok() {
        fs::hard_link(path, &aside).map_err(|error| failed(path, error))?;
        named.insert(0, aside);
    }
    sync_folder_of(path)?;
    Ok(named)
}

/// Makes a store whose log does not continue its file usable. See
/// [`Store::reset_wal`](crate::store::Store::reset_wal).
pub(crate) fn reset_wal(path: &Path) -> Result<WalReset, StoreError> {
    let _opening = registry::opening();
    let path = paths::absolute(path)?;
    let mut settled = WalReset::default();
    if !matches!(inspect(&path)?, FileKind::Store | FileKind::Unswitched) {
        return Ok(settled);
    }
    refuse_open(&path)?;
    let compared = |path: &Path| wal_link::compare(path, true).map_err(|error| failed(path, error));
    let mut link = compared(&path)?;
    if let LogLink::Foreign(reason) = &link {
        settled.found = Some(reason.clone());
        let log = beside(&free_name(&path)?, "-wal");
        move_if_exists(&beside(&path, "-wal"), &log)?;
        settled.put_aside.push(log);
        remove_if_exists(&beside(&path, "-shm")).map_err(|error| failed(&path, error))?;
        sync_folder_of(&path)?;
        link = compared(&path)?;
    }
    match link {
        LogLink::Sound | LogLink::Foreign(_) => return Ok(settled),
        // The rest of the log is used.
        LogLink::Cut(reason) => {
            settled.found = Some(reason);
            remove_if_exists(&beside(&path, "-shm")).map_err(|error| failed(&path, error))?;
        }
        LogLink::Missing(reason) => {
            settled.found.get_or_insert(reason);
            mark_whole(&path).map_err(|fault| fault.into_write(|| busy(&path)))?;
        }
    }
    debug_assert!(settled.found.is_some(), "an accepted loss has a finding");
    settled.is_loss_accepted = true;
    Ok(settled)
}

/// Lets a file say that it misses no log.
fn mark_whole(path: &Path) -> Res<()> {
    let conn = open::connect_plain(path)?;
    conn.execute_batch(sql::SYNC_FULL)?;
    conn.execute_batch(sql::BEGIN_WRITE)?;
    WalMark::replace(&conn, MarkState::Whole, false)?;
    debug_assert!(!conn.is_autocommit(), "the mark is replaced in a transaction");
    conn.execute_batch(sql::COMMIT)?;
    conn.query_row(sql::WAL_TRUNCATE, [], |_| Ok(()))?;
    Ok(())
}

/// Refuses a file that this or another process has open, as far as the operating system tells.
fn refuse_open(path: &Path) -> Result<(), StoreError> {
    if registry::is_open(path) || lock::is_in_use(path) {
        return Err(busy(path));
    }
    Ok(())
}

fn busy(path: &Path) -> StoreError {
    StoreError::Busy { waited_ms: 0, holder: lock::holder(path) }
}

/// Returns a name beside a file that nothing has, and neither has its log.
fn free_name(path: &Path) -> Result<PathBuf, StoreError> {
    let is_free =
        |name: &PathBuf| ["", "-wal"].iter().all(|suffix| fs::symlink_metadata(beside(name, suffix)).is_err());
    (1..=ASIDE_NAMES_MAX).map(|n| beside(path, &format!(".aside-{n}"))).find(is_free).ok_or_else(|| {
        cannot_open(path, &format!("{ASIDE_NAMES_MAX} files were put aside beside it: remove some of them"), None)
    })
}

fn move_if_exists(from: &Path, to: &Path) -> Result<bool, StoreError> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        moved => moved.map(|()| true).map_err(|error| failed(from, error)),
    }
}

fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn sync_folder_of(path: &Path) -> Result<(), StoreError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    system::sync_folder(folder).map_err(|error| failed(folder, error))
}

fn failed(path: &Path, error: io::Error) -> StoreError {
    let reason = format!("{}: {error}", path.display());
    StoreError::Write { reason, source: Some(Box::new(error)) }
}
