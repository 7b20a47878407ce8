//! Paths of a file and of those beside it, and the errors of an opening. *Absent:* connections.

use crate::store::error::StoreError;
use crate::store::sqlite::fault::{Fault, damage, is_no_database};
use std::io;
use std::path::{Path, PathBuf};

/// Returns the path of a file that SQLite keeps beside the main one.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}

/// Returns the absolute path of a file, which may be missing, without symbolic links.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, StoreError> {
    let absolute = || -> io::Result<PathBuf> {
        if path.exists() {
            return path.canonicalize();
        }
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(folder.canonicalize()?.join(name))
    };
    absolute().map_err(|error| cannot_open(path, &error.to_string(), Some(Box::new(error))))
}

pub(crate) fn cannot_open(
    path: &Path,
    reason: &str,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
) -> StoreError {
    StoreError::Open { path: path.into(), reason: reason.into(), source }
}

pub(crate) fn not_a_store(path: &Path, reason: &str) -> StoreError {
    StoreError::NotAStore { path: path.into(), reason: reason.into() }
}

/// Returns the error of something that failed while opening.
pub(crate) fn opening(path: &Path, fault: Fault) -> StoreError {
    match fault {
        Fault::Store(error) => error,
        Fault::Sql(error) if is_no_database(&error) => not_a_store(path, &error.to_string()),
        Fault::Sql(error) => {
            damage(&error).unwrap_or_else(|| cannot_open(path, &error.to_string(), Some(Box::new(error))))
        }
    }
}
