//! The exceptions of `annals.errors`, by the kinds of the engine's errors.

use annals::history::TransferError;
use annals::store::StoreError;
use annals::{Error, ErrorKind};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

pyo3::import_exception!(annals.errors, BusyError);
pyo3::import_exception!(annals.errors, ConflictError);
pyo3::import_exception!(annals.errors, CorruptError);
pyo3::import_exception!(annals.errors, FormatError);
pyo3::import_exception!(annals.errors, IntegerSizeError);
pyo3::import_exception!(annals.errors, InvalidError);
pyo3::import_exception!(annals.errors, NotFoundError);
pyo3::import_exception!(annals.errors, OutcomeUnknownError);
pyo3::import_exception!(annals.errors, SchemaChangedError);
pyo3::import_exception!(annals.errors, StorageError);
pyo3::import_exception!(annals.errors, UnsupportedError);
pyo3::import_exception!(annals.errors, ValueTypeError);

/// An error of a call, before it is known to Python.
#[derive(Debug)]
pub(crate) enum CallError {
    /// Of the engine.
    Engine(Error),
    /// Of an export or an import, but for those of the store.
    Transfer(TransferError),
    /// An exception of a function that the caller passed.
    Python(PyErr),
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        let source = match error.as_store() {
            Some(StoreError::Embedding { source }) => source.downcast_ref::<PyErr>(),
            _ => None,
        };
        match source {
            Some(raised) => Self::Python(Python::attach(|py| raised.clone_ref(py))),
            None => Self::Engine(error),
        }
    }
}

impl From<StoreError> for CallError {
    fn from(error: StoreError) -> Self {
        Error::from(error).into()
    }
}

impl From<TransferError> for CallError {
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::Store(error) => error.into(),
            error => Self::Transfer(error),
        }
    }
}

impl From<PyErr> for CallError {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<CallError> for PyErr {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Engine(error) => of_engine(&error),
            CallError::Transfer(error) => of_transfer(&error),
            CallError::Python(error) => error,
        }
    }
}

/// Makes the exception of an error of the engine.
pub(crate) fn raise(error: impl Into<Error>) -> PyErr {
    CallError::from(error.into()).into()
}

/// Makes the exception of an argument that is not valid.
pub(crate) fn invalid(message: impl Into<String>) -> PyErr {
    InvalidError::new_err((message.into(), "INVALID_ARGUMENT"))
}

fn of_engine(error: &Error) -> PyErr {
    let arguments = (error.to_string(), error.code().unwrap_or("INVALID_UPDATE"));
    match error.kind() {
        ErrorKind::Conflict => ConflictError::new_err(arguments),
        ErrorKind::Busy => BusyError::new_err(arguments),
        ErrorKind::OutcomeUnknown => OutcomeUnknownError::new_err(arguments),
        ErrorKind::Corrupt => CorruptError::new_err(arguments),
        ErrorKind::SchemaChanged => SchemaChangedError::new_err(arguments),
        ErrorKind::NewerFormat | ErrorKind::UnreleasedFormat => FormatError::new_err(arguments),
        ErrorKind::NotFound => NotFoundError::new_err(arguments),
        ErrorKind::Invalid | ErrorKind::User => InvalidError::new_err(arguments),
        ErrorKind::Io => StorageError::new_err(arguments),
        kind => PyRuntimeError::new_err(format!("{kind:?}: {error}")),
    }
}

fn of_transfer(error: &TransferError) -> PyErr {
    let message = error.to_string();
    match error {
        TransferError::Io { .. } => StorageError::new_err((message, "TRANSFER_FAILED")),
        TransferError::Exists { .. } => ConflictError::new_err((message, "THREAD_EXISTS")),
        TransferError::NoList { .. } => NotFoundError::new_err((message, "LIST_NOT_FOUND")),
        TransferError::NotJson { .. } => InvalidError::new_err((message, "NOT_JSON")),
        _ => InvalidError::new_err((message, "INVALID_MESSAGE")),
    }
}
