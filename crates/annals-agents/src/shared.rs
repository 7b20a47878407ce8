//! The values that the steps of one run share, and the view of a run that prompt functions get.
//!
//! *Absent:* the state of the run, which is stored.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use annals_base::Clock;
use annals_graph::graph::NodeResult;
use annals_graph::task::Context;
use annals_pydantic_ai::{DateTime, ModelMessage, RequestUsage, RunUsage, UsageLimits};

use crate::event::AgentEvent;
use crate::gate::EventGate;
use crate::history::KnownHistory;
use crate::model::{Model, ModelSettings};
use crate::span::AgentRunSpan;

/// The value in the stream of a run that stands for a batch of events in its gate.
pub(crate) const BATCH: &str = "annals-agents: a batch of events";

/// A function that is called with each event of a run.
pub(crate) type EventListener = Arc<dyn Fn(&AgentEvent) + Send + Sync>;

/// The values that the steps of one run share.
#[derive(Clone)]
pub(crate) struct RunShared {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) deps: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) model: Option<Arc<dyn Model>>,
    pub(crate) settings: ModelSettings,
    pub(crate) instructions: Option<String>,
    pub(crate) limits: Option<UsageLimits>,
    pub(crate) listener: Option<EventListener>,
    pub(crate) gate: Option<Arc<EventGate>>,
    pub(crate) persists: bool,
    pub(crate) known: Arc<KnownHistory>,
    pub(crate) span: AgentRunSpan,
}

impl RunShared {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let (deps, model, instructions, limits, listener, gate) = (None, None, None, None, None, None);
        let settings = ModelSettings::default();
        let (persists, known, span) = (false, Arc::default(), AgentRunSpan::default());
        Self { clock, deps, model, settings, instructions, limits, listener, gate, persists, known, span }
    }

    /// Returns the values of the run of a context.
    pub(crate) fn of(context: &Context) -> NodeResult<&Self> {
        context.value::<Self>().ok_or_else(|| "the step runs in an agent".into())
    }

    pub(crate) fn now(&self) -> DateTime {
        self.clock.now().into()
    }

    pub(crate) fn deps<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.deps.as_deref()?.downcast_ref()
    }

    /// Returns whether responses stream in.
    pub(crate) fn streams(&self) -> bool {
        self.is_shown() || self.persists
    }

    /// Returns whether anybody sees events.
    pub(crate) fn is_shown(&self) -> bool {
        self.listener.is_some() || self.gate.is_some()
    }

    /// Shows events.
    pub(crate) fn show(&self, context: &Context, events: Vec<AgentEvent>, usage: Option<RequestUsage>) {
        if events.is_empty() {
            return;
        }
        if let Some(listener) = &self.listener {
            events.iter().for_each(|event| listener(event));
        }
        if let Some(gate) = &self.gate {
            gate.show(events, usage);
            context.emit(BATCH);
        }
    }
}

/// The view of a run that prompt functions and history processors get (`RunContext`).
pub struct RunInfo<'a> {
    pub(crate) shared: &'a RunShared,
    /// The history so far.
    pub messages: &'a [ModelMessage],
    /// The usage of the run so far.
    pub usage: &'a RunUsage,
    /// The id of the run.
    pub run_id: &'a str,
}

impl RunInfo<'_> {
    /// Returns the dependencies of the run ([`AgentRun::deps`](crate::AgentRun::deps)), `None` if it has none of this
    /// type.
    pub fn deps<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.shared.deps()
    }

    /// Returns the present time, by the clock of the agent.
    pub fn now(&self) -> DateTime {
        self.shared.now()
    }
}

impl fmt::Debug for RunInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunInfo").field("run_id", &self.run_id).finish_non_exhaustive()
    }
}
