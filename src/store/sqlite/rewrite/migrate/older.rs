//! The copy of a file of an older format, beside the store until the migrated file verifies.
//!
//! It is `NAME.format-N-unverified` until then. After that it is removed, or retained as `NAME.format-N` if that was
//! asked for, or if the migrated file has problems. A copy that a crash left behind is handled by the next open for
//! writing: it is made anew if the file still has the older format, and otherwise the file is verified first. *Absent:*
//! reads of a copy; it is a store of the older format.

use crate::limits::OLDER_COPIES_MAX;
use crate::store::check::Finding;
use crate::store::error::StoreError;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::file::paths::beside;
use crate::store::sqlite::file::place::FilePlace;
use crate::store::sqlite::file::{backup, paths, system};
use crate::store::sqlite::sql;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A copy whose store was verified.
pub(super) struct Settled {
    /// The format of the copy.
    pub(super) format: i64,
    /// The path of the copy, if it is retained.
    pub(super) path: Option<PathBuf>,
    /// The problems of the store.
    pub(super) problems: Vec<Finding>,
}

/// Copies the file before the step from `format`, and returns the path of the copy. The caller holds the write lock, so
/// the copy is the file as the step finds it.
pub(super) fn retain(place: &FilePlace, format: i64) -> Res<PathBuf> {
    let to = unverified(place, format);
    // Leftovers of an attempt whose transaction did not commit: the file is as it was.
    for leftover in [&to, &beside(&to, "-unfinished")] {
        remove(place, leftover)?;
    }
    backup::copy_of_format(place, &to, format)?;
    Ok(to)
}

/// Removes or retains the copy of a migration that was committed, by this process or by one that ended too early.
/// The argument `verify` collects the problems of the store. The result is `None` without a copy.
pub(super) fn settle(place: &FilePlace, verify: impl FnOnce(&mut Vec<Finding>) -> Res<()>) -> Res<Option<Settled>> {
    let Some(format) = (1..sql::FORMAT).find(|format| is_file(&unverified(place, *format))) else { return Ok(None) };
    let copy = unverified(place, format);
    let mut problems = Vec::new();
    verify(&mut problems)?;
    let path = if place.retain_older || !problems.is_empty() {
        let path = free_name(place, format)?;
        // One step, so that of several processes that have verified the store one retains the copy.
        match fs::rename(&copy, &path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(place, &path, error).into()),
            Ok(()) => Some(path),
        }
    } else {
        remove(place, &copy)?;
        None
    };
    let folder = place.path.parent().unwrap_or(Path::new("."));
    system::sync_folder(folder).map_err(|error| failed(place, folder, error))?;
    Ok(Some(Settled { format, path, problems }))
}

/// Returns the path of a copy whose store is not verified yet.
fn unverified(place: &FilePlace, format: i64) -> PathBuf {
    beside(&place.path, &format!(".format-{format}-unverified"))
}

/// Returns a path for a copy that is retained, at which nothing is.
fn free_name(place: &FilePlace, format: i64) -> Res<PathBuf> {
    let name = |number: usize| match number {
        1 => beside(&place.path, &format!(".format-{format}")),
        _ => beside(&place.path, &format!(".format-{format}-{number}")),
    };
    let free = (1..=OLDER_COPIES_MAX).map(name).find(|path| path.symlink_metadata().is_err());
    let taken = || failed(place, &name(1), io::ErrorKind::AlreadyExists.into());
    Ok(free.ok_or_else(taken)?)
}

fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file())
}

fn remove(place: &FilePlace, path: &Path) -> Res<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(place, path, error).into()),
        _ => Ok(()),
    }
}

fn failed(place: &FilePlace, path: &Path, error: io::Error) -> StoreError {
    paths::cannot_open(&place.path, &format!("{}: {error}", path.display()), Some(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::options::OpenOptions;
    use crate::store::sqlite::SqliteBackend;
    use crate::store::sqlite::file::open::readable;

    /// A store in a folder, with a copy that is not verified yet.
    fn copied(options: &OpenOptions) -> (tempfile::TempDir, FilePlace, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        drop(SqliteBackend::open(&path, &OpenOptions::new()).unwrap());
        let place = readable(&path, options).unwrap();
        let copy = unverified(&place, 1);
        fs::write(&copy, "a copy").unwrap();
        (folder, place, copy)
    }

    fn finding() -> Finding {
        Finding::new(crate::store::check::Invariant::Rows, "here", "it is damaged")
    }

    #[test]
    fn a_copy_is_removed_unless_it_is_asked_for_or_needed() {
        for (retain, has_problem) in [(false, false), (true, false), (false, true), (true, true)] {
            let (folder, place, copy) = copied(&OpenOptions::new().retain_older_format(retain));
            let verify = |problems: &mut Vec<Finding>| {
                problems.extend(has_problem.then(finding));
                Ok(())
            };
            let settled = settle(&place, verify).unwrap().unwrap();
            let kept = folder.path().canonicalize().unwrap().join("x.db.format-1");
            assert_eq!((settled.format, settled.problems.len()), (1, usize::from(has_problem)));
            assert_eq!(settled.path, (retain || has_problem).then(|| kept.clone()));
            assert_eq!((copy.exists(), kept.exists()), (false, retain || has_problem));
            assert!(settle(&place, |_| unreachable!("there is no copy")).unwrap().is_none());
        }
    }

    #[test]
    fn a_copy_that_another_process_settled_is_none_of_this_one() {
        let (_folder, place, copy) = copied(&OpenOptions::new().retain_older_format(true));
        let settled = settle(&place, |_| {
            fs::remove_file(&copy).unwrap();
            Ok(())
        });
        assert!(settled.unwrap().is_none());
    }

    #[test]
    fn a_copy_that_cannot_be_retained_is_an_error() {
        let (folder, place, _) = copied(&OpenOptions::new().retain_older_format(true));
        let moved = tempfile::tempdir().unwrap();
        let settled = settle(&place, |_| {
            // A file is in the place of the folder.
            fs::rename(folder.path(), moved.path().join("moved")).unwrap();
            fs::write(folder.path(), "a file").unwrap();
            Ok(())
        });
        fs::remove_file(folder.path()).unwrap();
        assert!(settled.is_err());
    }

    #[test]
    fn what_is_no_file_is_not_a_copy_and_not_removed() {
        let (_folder, place, copy) = copied(&OpenOptions::new());
        assert!(is_file(&copy));
        remove(&place, &copy).unwrap();
        assert!(!copy.exists() && !is_file(&copy));
        remove(&place, &copy).unwrap();
        fs::create_dir(&copy).unwrap();
        assert!(!is_file(&copy));
        assert!(remove(&place, &copy).is_err() && copy.exists());
        assert!(settle(&place, |_| unreachable!("there is no copy")).unwrap().is_none());
    }

    #[test]
    fn a_name_that_is_taken_is_passed_over() {
        let (folder, place, _) = copied(&OpenOptions::new());
        let folder = folder.path().canonicalize().unwrap();
        for name in ["x.db.format-1", "x.db.format-1-2", "x.db.format-1-3"] {
            assert_eq!(free_name(&place, 1).unwrap(), folder.join(name));
            fs::write(folder.join(name), "taken").unwrap();
        }
        for number in 4..=OLDER_COPIES_MAX {
            fs::write(folder.join(format!("x.db.format-1-{number}")), "taken").unwrap();
        }
        assert!(free_name(&place, 1).is_err());
    }
}
