//! Maps errors of SQLite to errors of the store.

use crate::limits::ERROR_TEXT_BYTES_MAX;
use crate::store::error::StoreError;
use rusqlite::{ErrorCode, ffi};

/// An error inside the backend: SQLite's, whose meaning depends on the operation, or one of the store.
#[derive(Debug)]
pub(crate) enum Fault {
    Sql(rusqlite::Error),
    Store(StoreError),
}

/// A result inside the backend.
pub(crate) type Res<T> = Result<T, Fault>;

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Fault {
    /// Returns the error that a fault in stored rows means, unless it tells that they could not be read.
    pub(crate) fn if_read(self, meaning: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Store(StoreError::Corrupt { .. }) | Self::Sql(_) => self,
            Self::Store(_) => meaning(),
        }
    }

    /// Returns the error of something that only read.
    pub(crate) fn into_read(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Sql(error) => damage(&error)
                .unwrap_or_else(|| StoreError::Read { reason: error.to_string(), source: Some(Box::new(error)) }),
        }
    }

    /// Returns the error of a transaction that was rolled back; `busy` makes that of a lock that was not free.
    pub(crate) fn into_write(self, busy: impl FnOnce() -> StoreError) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Sql(error) if is_busy(&error) => busy(),
            Self::Sql(error) => damage(&error)
                .unwrap_or_else(|| StoreError::Write { reason: error.to_string(), source: Some(Box::new(error)) }),
        }
    }
}

/// Makes the error of a row that does not match the format. Its texts may hold names out of the file, which can be
/// long.
pub(crate) fn corrupt(place: impl Into<String>, reason: impl Into<String>) -> Fault {
    let (place, reason) = (bounded(place.into()), bounded(reason.into()));
    Fault::Store(StoreError::Corrupt { place, reason })
}

/// Cuts a text off at its limit.
fn bounded(mut text: String) -> String {
    if text.len() > ERROR_TEXT_BYTES_MAX {
        let end = (0..=ERROR_TEXT_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push_str("...");
    }
    text
}

/// Makes the error of a field that is not valid.
pub(crate) fn invalid(field: &'static str, reason: impl Into<String>) -> Fault {
    Fault::Store(StoreError::Invalid { field, reason: reason.into() })
}

/// Returns whether a result says that another connection holds a lock.
pub(crate) fn found_busy<T>(result: &Res<T>) -> bool {
    matches!(result, Err(Fault::Sql(error)) if is_busy(error))
}

/// Returns whether another connection holds a lock.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Returns whether the folder of a file refuses the `-shm` file, in which connections share their locks.
pub(crate) fn refuses_locks(fault: &Fault) -> bool {
    let Fault::Sql(error) = fault else { return false };
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied))
}

/// Returns whether the disk has no room for the `-shm` file, in which connections share their locks.
pub(crate) fn lacks_room_for_locks(fault: &Fault) -> bool {
    let Fault::Sql(error) = fault else { return false };
    error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_IOERR_SHMSIZE)
}

/// The reason for which a group of commits was rolled back, of which each of its jobs is told.
#[derive(Clone, Debug)]
pub(crate) struct RolledBack {
    reason: String,
    /// The code of SQLite, which an error with a source has to carry: the fault itself cannot be copied.
    code: Option<ffi::Error>,
}

impl RolledBack {
    /// Returns the reason that a fault gives.
    pub(crate) fn by(fault: &Fault) -> Self {
        match fault {
            Fault::Sql(error) => Self { reason: error.to_string(), code: error.sqlite_error().copied() },
            Fault::Store(error) => Self { reason: error.to_string(), code: code_of(error) },
        }
    }

    /// Returns the reason of a transaction that had to end although SQLite reported no error.
    pub(crate) fn because(reason: &str) -> Self {
        Self { reason: reason.to_owned(), code: None }
    }

    /// Makes the error of one job.
    pub(crate) fn error(&self) -> StoreError {
        let reason = format!("the whole group of commits was rolled back: {}", self.reason);
        let cause = |code| rusqlite::Error::SqliteFailure(code, Some(self.reason.clone()));
        StoreError::Write { reason, source: self.code.map(|code| Box::new(cause(code)) as _) }
    }
}

/// Returns the code with which SQLite refused a write.
fn code_of(error: &StoreError) -> Option<ffi::Error> {
    let StoreError::Write { source: Some(source), .. } = error else { return None };
    source.downcast_ref::<rusqlite::Error>()?.sqlite_error().copied()
}

/// Returns whether a write failed because the disk is full.
pub(crate) fn is_full(error: &StoreError) -> bool {
    code_of(error).is_some_and(|code| code.code == ErrorCode::DiskFull)
}

/// Returns whether the file is not a database.
pub(crate) fn is_no_database(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::NotADatabase)
}

/// Returns the error of damage, if it is one: SQLite found it, or a column has another type than the schema says.
pub(crate) fn damage(error: &rusqlite::Error) -> Option<StoreError> {
    use rusqlite::Error as E;
    let place = match error {
        E::InvalidColumnType(_, column, _) => format!("column {column}"),
        E::FromSqlConversionFailure(..) | E::IntegralValueOutOfRange(..) | E::Utf8Error(..) => "a row".into(),
        _ => match error.sqlite_error_code()? {
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => "the file".into(),
            _ => return None,
        },
    };
    Some(StoreError::Corrupt { place, reason: error.to_string() })
}

/// Returns the reason that a fault gives to others than the one it befell.
pub(crate) fn reason(fault: &Fault) -> String {
    match fault {
        Fault::Sql(error) => error.to_string(),
        Fault::Store(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_errors_are_bounded() {
        let long = "é".repeat(ERROR_TEXT_BYTES_MAX);
        let Fault::Store(StoreError::Corrupt { place, reason }) = corrupt(long, "short") else { unreachable!() };
        assert!(place.len() <= ERROR_TEXT_BYTES_MAX + 3 && place.ends_with("é...") && reason == "short");
    }

    #[test]
    fn a_full_disk_is_known_by_its_code_also_of_a_group() {
        let failed = |code| Fault::Sql(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        let alone = |code| failed(code).into_write(|| StoreError::ReadOnly);
        let of_group = |code| RolledBack::by(&failed(code)).error();
        assert!(is_full(&alone(ffi::SQLITE_FULL)) && is_full(&of_group(ffi::SQLITE_FULL)));
        assert!(is_full(&RolledBack::by(&Fault::Store(of_group(ffi::SQLITE_FULL))).error()), "the code is carried on");
        assert!(!is_full(&alone(ffi::SQLITE_IOERR)) && !is_full(&of_group(ffi::SQLITE_IOERR)));
        // The words alone do not make a full disk: they may stand in a value or a name.
        assert!(!is_full(&RolledBack::because("database or disk is full").error()) && !is_full(&StoreError::ReadOnly));
    }

    #[test]
    fn the_reason_of_a_fault_is_the_text_of_its_error() {
        assert_eq!(reason(&Fault::Store(StoreError::ReadOnly)), StoreError::ReadOnly.to_string());
        let error = rusqlite::Error::QueryReturnedNoRows;
        let text = error.to_string();
        assert_eq!(reason(&Fault::Sql(error)), text);
    }
}
