//! Failures: of the server, and of one request with its status.

use annals::ErrorKind;
use annals::store::StoreError;
use serde_json::{Value as Json, json};

/// A failure of the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// A request is not one of HTTP/1.1, or is past a limit.
    #[error("the request is not valid: {reason}")]
    Malformed {
        /// The reason, with the limit.
        reason: &'static str,
    },
    /// The operating system gave no random bytes for the token.
    #[error("no random bytes for the token: {reason}")]
    Random {
        /// The reason.
        reason: String,
    },
    /// A document could not be written.
    #[error("the document cannot be written: {reason}")]
    Document {
        /// The reason.
        reason: String,
    },
    /// The store of a document could not be read.
    #[error(transparent)]
    Read(#[from] annals::Error),
    /// A file in the folder of a site was not written as a part of it, and was not changed.
    #[error("{path} is not a part of the site, and was not changed")]
    ForeignFile {
        /// The path of the file.
        path: String,
    },
    /// The folder of a site, or a file in it, cannot be read or written.
    #[error("{path}: {source}")]
    Folder {
        /// The path.
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The socket could not be opened.
    #[error("port {port} of the loopback address cannot be opened: {source}")]
    Bind {
        /// The port.
        port: u16,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The server could not begin to answer requests.
    #[error("no request can be answered: {source}")]
    Run {
        /// The error of the operating system.
        source: std::io::Error,
    },
}

/// The failure of one request.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<&'static str>,
}

impl Refusal {
    pub(crate) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        debug_assert!((400..600).contains(&status), "{status} is the status of a failure");
        Self { status, code, message: message.into(), hint: None }
    }

    pub(crate) fn hint(self, hint: &'static str) -> Self {
        Self { hint: Some(hint), ..self }
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(404, "not_found", message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(400, "usage", message)
    }

    pub(crate) fn document(&self) -> Json {
        json!({ "error": { "code": self.code, "message": self.message, "hint": self.hint } })
    }
}

impl From<StoreError> for PageError {
    fn from(error: StoreError) -> Self {
        Self::Read(error.into())
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        annals::Error::from(error).into()
    }
}

impl From<annals::Error> for Refusal {
    fn from(error: annals::Error) -> Self {
        use StoreError as E;
        let (status, code) = match (error.kind(), error.as_store()) {
            (_, Some(E::ThreadNotFound { .. })) => (404, "thread_not_found"),
            (_, Some(E::CheckpointNotFound { .. })) => (404, "checkpoint_not_found"),
            (_, Some(E::Ambiguous { .. } | E::AmbiguousThread { .. })) => (400, "ambiguous"),
            (_, Some(E::InvalidPoint { .. })) => (400, "invalid_point"),
            (_, Some(E::Id(_))) => (400, "invalid_id"),
            (_, Some(E::Codec(_))) | (ErrorKind::Corrupt, _) => (500, "corrupt"),
            (ErrorKind::NotFound, _) => (404, "not_found"),
            (ErrorKind::Invalid | ErrorKind::User | ErrorKind::Limit, _) => (400, "invalid"),
            (ErrorKind::Conflict, _) => (409, "conflict"),
            (ErrorKind::Busy, _) => (503, "busy"),
            _ => (500, "io"),
        };
        Self::new(status, code, error.to_string())
    }
}
