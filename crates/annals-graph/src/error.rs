//! The error type of the crate: opaque, with a kind and predicates.

use std::fmt;

use annals::base::CodecError;
use annals::base::IdError;
use annals::message::MessageError;
use annals::state::StateError;
use annals::store::StoreError;

pub use annals::ErrorKind;

use crate::exec::RunError;
use crate::graph::GraphError;

/// The result of a call into `annals_graph`.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any error of a run, a graph or the engine below them. Its message describes the resulting state; [`Error::kind`]
/// says how to react.
///
/// The floor's own error is behind [`std::error::Error::source`] and the `as_*` methods.
pub struct Error(Box<Repr>);

#[derive(Debug)]
enum Repr {
    Engine(annals::Error),
    Run(RunError),
    Graph(GraphError),
}

impl Error {
    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        match &*self.0 {
            Repr::Engine(error) => error.kind(),
            Repr::Run(error) => run_kind(error),
            Repr::Graph(_) => ErrorKind::Invalid,
        }
    }

    /// Returns the error code of the field, as `INVALID_CONCURRENT_GRAPH_UPDATE`, if it has one; of an error of the
    /// store
    /// [its own](StoreError::code).
    pub fn code(&self) -> Option<&'static str> {
        match &*self.0 {
            Repr::Engine(error) => error.code(),
            Repr::Run(error) => error.code(),
            Repr::Graph(_) => None,
        }
    }

    /// Returns the name of the error class that LangGraph raises in its place, as `InvalidUpdateError`; `Exception`
    /// where it has none.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Empty {}
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Empty>::new().node("n", |_: &Empty| Ok(())).edge(START, "n").compile()?;
    /// let error = graph.invoke(&Store::memory().thread("new")?, Input::Continue).unwrap_err();
    /// assert_eq!(error.class(), "EmptyInputError");
    /// # Ok(())
    /// # }
    /// ```
    pub fn class(&self) -> &'static str {
        match &*self.0 {
            Repr::Engine(error) => error.class(),
            Repr::Run(error) => error.class(),
            Repr::Graph(error) => error.class(),
        }
    }

    /// Returns whether another run on the thread was faster.
    pub fn is_conflict(&self) -> bool {
        self.kind() == ErrorKind::Conflict
    }

    /// Returns whether repeating the call may succeed and is safe.
    pub fn is_retryable(&self) -> bool {
        self.kind().is_retryable()
    }

    /// Returns whether a node, path or reducer of the user failed.
    pub fn is_user(&self) -> bool {
        self.kind() == ErrorKind::User
    }

    /// Returns the error of the store, if it is one.
    pub fn as_store(&self) -> Option<&StoreError> {
        match &*self.0 {
            Repr::Engine(error) => error.as_store(),
            _ => None,
        }
    }

    /// Returns the error of a run, if it is one.
    pub fn as_run(&self) -> Option<&RunError> {
        match &*self.0 {
            Repr::Run(error) => Some(error),
            _ => None,
        }
    }
}

fn run_kind(error: &RunError) -> ErrorKind {
    match error {
        RunError::Node { .. } | RunError::NodePanicked { .. } | RunError::NodeCancelled { .. } => ErrorKind::User,
        RunError::State(error) if error.is_user() => ErrorKind::User,
        RunError::RecursionLimit { .. } | RunError::NodeTimeout { .. } | RunError::StepTimeout { .. } => {
            ErrorKind::Limit
        }
        RunError::UnknownNode { .. } => ErrorKind::NotFound,
        _ => ErrorKind::Invalid,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Repr::Engine(error) => error.fmt(f),
            Repr::Run(error) => error.fmt(f),
            Repr::Graph(error) => error.fmt(f),
        }
    }
}

/// Writes the message and the chain of sources, with which `fn main() -> annals_graph::Result<()>` ends; with `{:#?}`
/// the fields.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return fmt::Debug::fmt(&self.0, f);
        }
        write_with_sources(self, f)
    }
}

/// Writes the message of an error and those of its sources, a line each.
fn write_with_sources(error: &dyn std::error::Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut shown = error.to_string();
    f.write_str(&shown)?;
    let mut source = error.source();
    while let Some(error) = source {
        let text = error.to_string();
        // Most messages end with that of their source.
        if !shown.ends_with(&text) {
            write!(f, "\ncaused by: {text}")?;
            shown = text;
        }
        source = error.source();
    }
    Ok(())
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            Repr::Engine(error) => error.source(),
            Repr::Run(error) => error.source(),
            Repr::Graph(_) => None,
        }
    }
}

impl From<annals::Error> for Error {
    fn from(error: annals::Error) -> Self {
        Self(Box::new(Repr::Engine(error)))
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        annals::Error::from(error).into()
    }
}

impl From<RunError> for Error {
    fn from(error: RunError) -> Self {
        Self(Box::new(Repr::Run(error)))
    }
}

impl From<GraphError> for Error {
    fn from(error: GraphError) -> Self {
        Self(Box::new(Repr::Graph(error)))
    }
}

macro_rules! through {
    ($($from:ty => $via:ty),* $(,)?) => {$(
        impl From<$from> for Error {
            fn from(error: $from) -> Self {
                <$via>::from(error).into()
            }
        }
    )*};
}
through! { IdError => StoreError, CodecError => StoreError, StateError => RunError }

impl From<MessageError> for Error {
    fn from(error: MessageError) -> Self {
        StateError::Message { channel: "messages".into(), source: error }.into()
    }
}
