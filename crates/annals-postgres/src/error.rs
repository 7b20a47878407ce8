//! Errors of the server as those of the store.
//!
//! An error that the server states rolled its transaction back: nothing was written. An error of the connection leaves
//! the outcome of a commit open.

use annals::store::StoreError;
use tokio_postgres::error::SqlState;

/// Why statements have failed.
#[derive(Debug)]
pub(crate) struct PgFault(tokio_postgres::Error);

impl From<tokio_postgres::Error> for PgFault {
    fn from(error: tokio_postgres::Error) -> Self {
        Self(error)
    }
}

impl PgFault {
    fn state(&self) -> Option<&SqlState> {
        self.0.code()
    }

    /// Returns whether the server has said that the transaction failed, so that nothing of it is stored.
    pub(crate) fn is_refusal(&self) -> bool {
        self.state().is_some_and(|state| !is_of_connection(state))
    }

    /// Returns whether another attempt may succeed. A standby takes no commits until it has become the primary.
    pub(crate) fn passes(&self) -> bool {
        let passing = [
            &SqlState::T_R_SERIALIZATION_FAILURE,
            &SqlState::T_R_DEADLOCK_DETECTED,
            &SqlState::READ_ONLY_SQL_TRANSACTION,
        ];
        match self.state() {
            Some(state) => is_of_connection(state) || self.is_of_pooler() || passing.contains(&state),
            None => true,
        }
    }

    /// Returns whether the connection lacks a statement that was prepared, or has one that was not: a pooler lends
    /// another one to each transaction.
    pub(crate) fn is_of_pooler(&self) -> bool {
        let of_pooler = [&SqlState::INVALID_SQL_STATEMENT_NAME, &SqlState::DUPLICATE_PSTATEMENT];
        self.state().is_some_and(|state| of_pooler.contains(&state))
    }

    /// Returns whether a connection may have been refused because of the options of its startup packet, as a pooler
    /// does.
    pub(crate) fn may_refuse_options(&self) -> bool {
        let of_options = [&SqlState::PROTOCOL_VIOLATION, &SqlState::FEATURE_NOT_SUPPORTED];
        self.state().is_some_and(|state| of_options.contains(&state))
    }

    /// Returns whether a row that the statements inserted was there: the number of another one.
    pub(crate) fn is_duplicate(&self) -> bool {
        self.state() == Some(&SqlState::UNIQUE_VIOLATION)
    }

    fn reason(&self) -> String {
        match self.0.as_db_error() {
            Some(error) => format!("{} ({})", error.message(), error.code().code()),
            None => match std::error::Error::source(&self.0) {
                Some(source) => format!("{}: {source}", self.0),
                None => self.0.to_string(),
            },
        }
    }
}

/// Returns whether a state tells that the connection, or the server, ends or is not there yet.
fn is_of_connection(state: &SqlState) -> bool {
    let ends = [
        &SqlState::ADMIN_SHUTDOWN,
        &SqlState::CRASH_SHUTDOWN,
        &SqlState::CANNOT_CONNECT_NOW,
        &SqlState::TOO_MANY_CONNECTIONS,
        &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    ends.contains(&state) || state.code().starts_with("08")
}

/// Returns the error of a read.
pub(crate) fn read_error(fault: PgFault) -> StoreError {
    StoreError::Read { reason: fault.reason(), source: Some(Box::new(fault.0)) }
}

/// Returns the error of a write that was not repeated any more.
pub(crate) fn write_error(fault: PgFault) -> StoreError {
    if fault.is_refusal() {
        StoreError::Write { reason: fault.reason(), source: Some(Box::new(fault.0)) }
    } else {
        StoreError::OutcomeUnknown { reason: fault.reason() }
    }
}

/// Returns the error of an opening.
pub(crate) fn open_error(shown: &str, reason: impl Into<String>) -> StoreError {
    StoreError::Open { path: shown.into(), reason: reason.into(), source: None }
}

/// Returns the error of an opening that a statement refused.
pub(crate) fn open_fault(shown: &str, fault: PgFault) -> StoreError {
    StoreError::Open { path: shown.into(), reason: fault.reason(), source: Some(Box::new(fault.0)) }
}

/// Returns the error of a row that cannot be read.
pub(crate) fn corrupt(place: impl Into<String>, reason: impl Into<String>) -> StoreError {
    StoreError::Corrupt { place: place.into(), reason: reason.into() }
}
