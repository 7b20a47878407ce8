//! The error of an agent: a kind, the history so far, and its cause.
//!
//! *Absent:* an interrupt, which is an outcome.

use std::fmt;
use std::sync::Arc;

use annals_pydantic_ai::ModelMessage;

use crate::deferred::DeferredRequests;
use crate::history::SharedHistory;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AgentErrorKind {
    /// The arguments of the run do not fit (`UserError`).
    Input,
    /// A limit on usage is reached (`UsageLimitExceeded`).
    UsageLimit,
    /// The model could not be asked.
    Model,
    /// A tool failed with an error that is not for the model. The run can be resumed: the call runs again.
    Tool,
    /// The model did not give a usable output or call in the allowed number of attempts (`UnexpectedModelBehavior`).
    Behavior,
    /// A validator, a processor or a prompt function failed.
    Function,
    /// The run waits for approvals or results, which [`Agent::resume`](crate::Agent::resume) takes.
    Waiting,
    /// The run was stopped.
    Stopped,
    /// The store or the run of the graph failed.
    Run,
}

/// The error of an agent.
///
/// Its messages are those of the history at that point: a later run can go on with them.
#[derive(Clone)]
pub struct AgentError(Arc<AgentErrorRepr>);

struct AgentErrorRepr {
    kind: AgentErrorKind,
    message: String,
    messages: SharedHistory,
    requests: Option<DeferredRequests>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl AgentError {
    pub(crate) fn new(kind: AgentErrorKind, message: impl Into<String>) -> Self {
        let (messages, requests, source) = (Arc::default(), None, None);
        Self(Arc::new(AgentErrorRepr { kind, message: message.into(), messages, requests, source }))
    }

    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self::new(AgentErrorKind::Input, message)
    }

    pub(crate) fn with_source(
        kind: AgentErrorKind,
        message: impl Into<String>,
        source: Arc<dyn std::error::Error + Send + Sync>,
    ) -> Self {
        let (messages, requests) = (Arc::default(), None);
        Self(Arc::new(AgentErrorRepr { kind, message: message.into(), messages, requests, source: Some(source) }))
    }

    /// Returns the error with the history at that point.
    pub(crate) fn at(&self, messages: impl Into<SharedHistory>) -> Self {
        let messages = messages.into();
        let AgentErrorRepr { kind, message, requests, source, .. } = &*self.0;
        let (message, requests, source) = (message.clone(), requests.clone(), source.clone());
        Self(Arc::new(AgentErrorRepr { kind: *kind, message, messages, requests, source }))
    }

    pub(crate) fn waiting(requests: DeferredRequests, messages: Vec<ModelMessage>) -> Self {
        let message = format!(
            "the run waits for {} approvals and {} results; Agent::resume takes them",
            requests.approvals.len(),
            requests.calls.len()
        );
        let (requests, messages) = (Some(requests), Arc::new(messages));
        Self(Arc::new(AgentErrorRepr { kind: AgentErrorKind::Waiting, message, messages, requests, source: None }))
    }

    /// Returns the kind.
    pub fn kind(&self) -> AgentErrorKind {
        self.0.kind
    }

    /// Returns the history when the run ended: the history given, and the messages of the run. A request that the run
    /// could not complete has the state `interrupted`.
    pub fn messages(&self) -> &[ModelMessage] {
        &self.0.messages
    }

    /// Returns the calls that the run waits for, if it does.
    pub fn requests(&self) -> Option<&DeferredRequests> {
        self.0.requests.as_ref()
    }

    /// Returns the error of the model, of the tool or of the graph, or the first of its causes that is of type `E`.
    pub fn find<E: std::error::Error + 'static>(&self) -> Option<&E> {
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            if let Some(found) = error.downcast_ref::<E>() {
                return Some(found);
            }
            cause = error.source();
        }
        None
    }
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.message)
    }
}

impl std::error::Error for AgentError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

impl From<annals_graph::Error> for AgentError {
    fn from(error: annals_graph::Error) -> Self {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(source) = cause {
            if let Some(own) = source.downcast_ref::<Self>() {
                return own.clone();
            }
            cause = source.source();
        }
        Self::with_source(AgentErrorKind::Run, error.to_string(), Arc::new(error))
    }
}
