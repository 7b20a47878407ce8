//! The error type of the crate.

use std::path::PathBuf;

use annals_graph::runs::InvalidResumeValue;
use annals_graph::task::Interrupt;

use crate::problem::FileError;

/// The result of a call into `annals_flow`.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any error of a workflow file or of its run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file has problems.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file is too large.
    #[error("{} has more than {} bytes", path.display(), crate::limits::FILE_BYTES_MAX)]
    FileTooLong {
        /// The file.
        path: PathBuf,
    },
    /// The input names a channel that the workflow does not have.
    #[error("the input names the channel `{channel}`, which the workflow does not have")]
    UnknownChannel {
        /// The channel.
        channel: String,
    },
    /// A resume value was given, and no interrupt is open.
    #[error("no interrupt of the thread is open, so a resume value cannot be used")]
    NotWaiting,
    /// The resume value is of another type than the node with the interrupt asks for. Nothing was stored, and the
    /// interrupt stays open.
    #[error("the resume value for channel `{channel}` must be {expected}, but is {found}; the interrupt stays open")]
    ResumeValue {
        /// The channel that the node writes the resume value to.
        channel: String,
        /// The type or the choices.
        expected: String,
        /// The value.
        found: String,
    },
    /// The run has ended, and a value of `outputs` cannot be computed from its state.
    #[error("the run has ended, and its outputs cannot be computed: {reason}")]
    Outputs {
        /// The reason.
        reason: String,
    },
    /// A secret of the file has no value. Nothing ran.
    #[error("secret `{name}` of the workflow has no value; nothing ran")]
    MissingSecret {
        /// Its name.
        name: String,
    },
    /// The run was stopped from outside before its end. The thread can be continued.
    #[error("the run was stopped: {reason}")]
    Stopped {
        /// The reason.
        reason: String,
    },
    /// The run failed. The thread can be continued with the same call.
    #[error(transparent)]
    Run(#[from] annals_graph::Error),
}

impl Error {
    pub(crate) fn resume_value(open: &Interrupt, misfit: InvalidResumeValue) -> Self {
        // The title of the schema is the channel.
        let title = open.response_schema.as_ref().and_then(|schema| schema.get("title")?.as_str());
        let InvalidResumeValue { path, expected, found, .. } = misfit;
        Self::ResumeValue { channel: title.unwrap_or(&path).to_owned(), expected, found }
    }
}

impl From<annals_graph::annals::store::StoreError> for Error {
    fn from(error: annals_graph::annals::store::StoreError) -> Self {
        Self::Run(error.into())
    }
}
