//! The builder of a run: its target, its settings, and the calls that run it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::Value;
use crate::base::limits::LEASE_DEFAULT;
use crate::drive::io::blocking::Driver;
use crate::drive::io::nonblocking::AsyncDriver;
use crate::drive::io::timer::{self, ParkTimer, Timer};
use crate::drive::worker::lease::HeldLease;
use crate::error::Error;
use crate::exec::{EventMask, RunError};
use crate::graph::{Breakpoints, CompiledGraph, Graph};
use crate::history::OnConflict;
use crate::state::StateError;
use crate::state::erased::field_of;
use crate::store::Kv;
use crate::store::lease::LeaseGroup;
use crate::task::RunControl;

use super::begin::{begin, begin_async};
use super::events::{Listener, RunEvent};
use super::input::{Input, IntoInput};
use super::load::LoadedHead;
use super::outcome::{Outcome, finish};
use super::signals::Receives;
use super::target::{RunOn, RunTarget};

/// When a superstep counts as done. A run that lost a race starts no further task under any of them, and returns a
/// conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Durability {
    /// When it is committed. A node or a called task starts only when its input and all results before it are
    /// committed, so a crash repeats only the tasks that were running.
    #[default]
    Sync,
    /// When it is handed to the background writer; the run returns when its last checkpoint is committed. The next
    /// superstep starts meanwhile, so a crash may repeat nodes that had ended, and lose a run whose input was not
    /// committed. A called task starts only when the commits before it are stored, and a run with an idempotency key
    /// starts only when its input is. A conflict may surface some supersteps late.
    Async,
    /// When the run ends: nothing is written before, then all of it as one checkpoint, together with those of the
    /// subgraphs that keep their state. A crash loses the whole run, also one with an idempotency key. For runs whose
    /// steps need no history.
    Exit,
}

/// A run that is being set up.
///
/// # Example
/// ```
/// use annals_graph::prelude::*;
///
/// #[derive(State, Clone, Default)]
/// struct Count { #[channel(last)] n: i64 }
///
/// # fn main() -> Result<()> {
/// let graph = StateGraph::<Count>::new()
///     .node("add", |s: &Count| Ok(Count::update().n(s.n + 1)))
///     .edge(START, "add")
///     .edge("add", "add")
///     .compile()?;
/// let error = graph.run(()).recursion_limit(5).invoke(Count::update().n(0)).unwrap_err();
/// assert_eq!(error.code(), Some("GRAPH_RECURSION_LIMIT"));
/// # Ok(())
/// # }
/// ```
pub struct Run<'a, S> {
    pub(in crate::drive) graph: &'a CompiledGraph<S>,
    pub(in crate::drive) target: RunTarget,
    pub(in crate::drive) settings: RunSettings,
}

/// The settings of a run, beside its input.
#[derive(Clone, Default)]
pub(in crate::drive) struct RunSettings {
    pub(super) recursion_limit: Option<u64>,
    pub(super) step_timeout: Option<Duration>,
    pub(in crate::drive) durability: Option<Durability>,
    pub(super) interrupt_before: Vec<String>,
    pub(super) interrupt_after: Vec<String>,
    pub(in crate::drive) metadata: Option<String>,
    pub(super) strict_resume: Option<bool>,
    pub(super) concurrency_max: Option<usize>,
    pub(super) value: Option<Arc<dyn Any + Send + Sync>>,
    pub(super) kv: Option<Kv>,
    pub(super) control: RunControl,
    pub(super) timer: Option<Arc<dyn Timer>>,
    pub(in crate::drive) output_keys: Option<Vec<String>>,
    pub(in crate::drive) subgraphs: bool,
    pub(super) key: Option<String>,
    pub(super) message_interval: Option<Duration>,
    /// True if the times at which tasks ended are stored.
    pub(super) records_ends: bool,
    pub(super) on_conflict: OnConflict,
    /// The listener of the run.
    pub(in crate::drive) listener: Option<Listener>,
    /// True if the run may continue one that a graph with another version began.
    pub(super) allows_changes: bool,
    /// The duration of the lease, if the run takes one.
    pub(in crate::drive) lease: Option<Duration>,
    /// The groups of leases that the claim of a run without an input enters.
    pub(in crate::drive) lease_groups: Vec<LeaseGroup>,
    /// The lease that the caller of the run has claimed for it.
    pub(in crate::drive) held_lease: Option<HeldLease>,
    /// The longest wait for the lease of another owner.
    pub(in crate::drive) lease_wait: Option<Duration>,
    /// The head that the run begins on, if it was loaded before.
    pub(super) loaded: LoadedHead,
}

impl RunSettings {
    /// Returns the breakpoints that stand in place of those of the graph, if any.
    pub(super) fn breakpoints(&self, graph: &Graph, when: &'static str) -> Result<Option<Breakpoints>, Error> {
        let names = if when == "before" { &self.interrupt_before } else { &self.interrupt_after };
        if names.is_empty() {
            return Ok(None);
        }
        Ok(Some(graph.breakpoints(names, when).map_err(RunError::from)?))
    }

    /// Finds what waits for a moment in an asynchronous run.
    pub(in crate::drive) fn find_timer(&mut self, graph: &Graph) -> Result<(), RunError> {
        self.timer = self.timer.take().or_else(timer::of_executor);
        let timed = self.step_timeout(graph).is_some();
        match graph.timed_node(timed).filter(|_| self.timer.is_none() && ParkTimer::here().is_none()) {
            Some(node) => Err(RunError::NoTimer { node: node.to_string() }),
            None => Ok(()),
        }
    }

    /// Returns how long a superstep may take.
    pub(super) fn step_timeout(&self, graph: &Graph) -> Option<Duration> {
        self.step_timeout.or(graph.step_timeout).filter(|limit| !limit.is_zero())
    }

    /// Returns the fields that the outside sees, if not all.
    pub(super) fn output_fields(&self, graph: &Graph) -> Result<Option<Arc<[usize]>>, Error> {
        let Some(channels) = &self.output_keys else { return Ok(None) };
        let fields = channels.iter().map(|channel| field_of(&*graph.layout, channel));
        Ok(Some(fields.collect::<Result<_, _>>().map_err(|error| match error {
            StateError::UnknownChannel { channel, known } => {
                RunError::UnknownOutput { channel, known: known.iter().map(|name| name.to_string()).collect() }
            }
            error => error.into(),
        })?))
    }
}

impl<S: Clone + Send + Sync + 'static> CompiledGraph<S> {
    /// Runs the graph with an input and returns the outcome.
    ///
    /// # Errors
    /// A node's own error as [`RunError::Node`]; [`RunError`] for the errors of the run itself; the store's errors.
    /// Committed supersteps stay, and the thread can be continued.
    pub fn invoke<M>(&self, on: impl RunOn, input: impl IntoInput<S, M>) -> Result<Outcome<S>, Error> {
        self.run(on).invoke(input)
    }

    /// Runs the graph with an input, without blocking; see [`Run::ainvoke`].
    ///
    /// # Errors
    /// As [`CompiledGraph::invoke`].
    pub async fn ainvoke<M>(&self, on: impl RunOn, input: impl IntoInput<S, M>) -> Result<Outcome<S>, Error> {
        self.run(on).ainvoke(input).await
    }

    /// Sets up a run with options.
    pub fn run(&self, on: impl RunOn) -> Run<'_, S> {
        let config = self.config.as_ref().and_then(|config| config.downcast_ref::<RunSettings>());
        let settings = config.map(|config| RunSettings { control: RunControl::default(), key: None, ..config.clone() });
        Run { graph: self, target: on.target(), settings: settings.unwrap_or_default() }
    }

    /// Returns the same graph, whose runs start with these options in place of the defaults. Each run can still set its
    /// own. A control and an idempotency key are a run's own and are not taken over; as a node of another graph, it
    /// takes the options of the run around it.
    ///
    /// # Example: a graph for impatient callers
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Count { #[channel(last)] n: i64 }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Count>::new()
    ///     .node("add", |c: &Count| Ok(Count::update().n(c.n + 1)))
    ///     .edge(START, "add")
    ///     .edge("add", "add")
    ///     .compile()?
    ///     .with_config(|run| run.recursion_limit(3));
    /// let error = graph.invoke((), Count::update().n(0)).unwrap_err();
    /// assert_eq!(error.code(), Some("GRAPH_RECURSION_LIMIT"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_config(&self, set: impl FnOnce(Run<'_, S>) -> Run<'_, S>) -> Self {
        let settings = set(self.run(())).settings;
        let mut graph = self.clone();
        graph.config = Some(Arc::new(settings));
        graph
    }
}

impl<'a, S: Clone + Send + Sync + 'static> Run<'a, S> {
    /// Sets how many supersteps the run may take. Default: 10,007.
    pub fn recursion_limit(mut self, limit: u64) -> Self {
        self.settings.recursion_limit = Some(limit);
        self
    }

    /// Limits the duration of each superstep, in place of the limit of the graph: see [`StateGraph::step_timeout`].
    /// Zero means unlimited.
    ///
    /// [`StateGraph::step_timeout`]: crate::graph::StateGraph::step_timeout
    pub fn step_timeout(mut self, limit: Duration) -> Self {
        self.settings.step_timeout = Some(limit);
        self
    }

    /// Sets when a superstep counts as done. Default: [`Durability::Sync`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.settings.durability = Some(durability);
        self
    }

    /// Stops before these nodes, in place of the breakpoints of the graph.
    pub fn interrupt_before(mut self, nodes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.settings.interrupt_before.extend(nodes.into_iter().map(Into::into));
        self
    }

    /// Stops after these nodes, in place of the breakpoints of the graph.
    pub fn interrupt_after(mut self, nodes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.settings.interrupt_after.extend(nodes.into_iter().map(Into::into));
        self
    }

    /// Sets metadata that is stored with every checkpoint of the run: `[("user", "ann")]`, or a JSON object.
    pub fn metadata(mut self, metadata: impl IntoIterator<Item = (impl Into<String>, impl Into<Value>)>) -> Self {
        let members = metadata.into_iter().map(|(name, value)| (name.into(), value.into().to_json()));
        self.settings.metadata = Some(serde_json::Value::Object(members.collect()).to_string());
        self
    }

    /// Rejects resume values that do not match an open interrupt, with [`RunError::UnknownInterrupt`], or else takes
    /// all: a value under an unknown id is ignored, and one without an id that no interrupt takes is dropped. At an
    /// older checkpoint whose interrupts were resumed, a strict run refuses another value, because the stored one
    /// counts there ([`ResumeProblem::Resumed`](crate::ResumeProblem::Resumed)). Default: as `false`, but a resume
    /// value for a thread that has ended is refused with
    /// [`StoreError::ThreadEnded`](crate::store::StoreError::ThreadEnded).
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Order { #[channel(last)] paid: bool }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Order>::new()
    ///     .node("pay", |_: &Order, ctx: &Context| Ok(Order::update().paid(ctx.interrupt("pay?")? == "yes")))
    ///     .edge(START, "pay")
    ///     .compile()?;
    /// let thread = Store::memory().thread("order")?;
    /// let asked = graph.invoke(&thread, Order::update())?;
    /// let answer = || Map::from_iter([(asked.interrupts()[0].id.clone(), Value::from("yes"))]);
    /// graph.run(&thread).strict_resume(true).invoke(Command::resume(Value::Map(answer())))?;
    /// // The click of somebody whose page is old.
    /// let error = graph.run(&thread).strict_resume(true).invoke(Command::resume(Value::Map(answer()))).unwrap_err();
    /// assert!(error.to_string().contains("not open"), "{error}");
    /// # Ok(())
    /// # }
    /// # use annals::base::Map;
    /// ```
    pub fn strict_resume(mut self, strict: bool) -> Self {
        self.settings.strict_resume = Some(strict);
        self
    }

    /// Sets how many tasks of a superstep run at the same time at most. With 1 they run one after another, in order.
    /// Default: no bound but that of the pool.
    #[doc(alias = "max_concurrency")]
    pub fn concurrency_max(mut self, tasks: usize) -> Self {
        self.settings.concurrency_max = Some(tasks.max(1));
        self
    }

    /// Gives the nodes a value that is not part of the state: settings, a client, a user. They get it with
    /// [`Context::value`](crate::task::Context::value); a graph can ask for it with
    /// [`StateGraph::context`](crate::graph::StateGraph::context). Graphs inside nodes share it.
    pub fn context<T: Any + Send + Sync>(mut self, value: T) -> Self {
        self.settings.value = Some(Arc::new(value));
        self
    }

    /// Sets the key-value memory that nodes get with [`Context::kv`](crate::task::Context::kv). Default: that of the
    /// store the run is recorded in.
    pub fn kv(mut self, kv: &Kv) -> Self {
        self.settings.kv = Some(kv.clone());
        self
    }

    /// Sets what waits for timeouts and for the pauses between attempts in an asynchronous run. Default: with the
    /// feature `tokio` the timer of the runtime that polls the run, else none: a graph in which a node has a timeout
    /// then does not run, and a pause takes a thread of the pool. A blocking run has its own.
    pub fn timer(mut self, timer: impl Timer) -> Self {
        self.settings.timer = Some(Arc::new(timer));
        self
    }

    /// Sets the control by which the run can be asked to stop, or be cancelled.
    pub fn control(mut self, control: &RunControl) -> Self {
        self.settings.control = control.clone();
        self
    }

    /// Shows only these channels of the state in `values`, in `updates` and in [`Run::output`]. Default: all; for
    /// [`Run::output`] those of the output of the graph.
    pub fn output_keys(mut self, channels: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.settings.output_keys = Some(channels.into_iter().map(Into::into).collect());
        self
    }

    /// Makes it safe to repeat the run: there is one run with this key on the thread. A run with a key that an earlier
    /// one had takes no input: it goes on where that one stopped, or, if that one has ended or another run has gone on
    /// since, it runs nothing and returns what that one came to, with the state at its last checkpoint. So a request
    /// that may or may not have arrived is sent again. Its input is committed before the first task starts, unless the
    /// durability is
    /// [`Durability::Exit`]. A resume value that is given by a run with a key is for the interrupt that is
    /// open then, and never for a later one.
    ///
    /// A run that stopped at a breakpoint stops there again. The resume value of a run that made no checkpoint, as
    /// another interrupt of the same superstep followed, is retained until that superstep has ended.
    ///
    /// # Errors
    /// [`RunError::BadKey`] when the run begins: the key is empty or longer than 1,024 bytes, or the run is on no
    /// thread.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Account { #[channel(reduce = i64::saturating_add)] balance: i64 }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Account>::new()
    ///     .node("note", |_: &Account| Ok(Account::update()))
    ///     .edge(START, "note")
    ///     .compile()?;
    /// let thread = Store::memory().thread("account-7")?;
    /// for _ in 0..3 {
    ///     let paid = graph.run(&thread).idempotency_key("payment-1").invoke(Account::update().balance(10))?;
    ///     assert_eq!(paid.state().balance, 10);
    /// }
    /// let paid = graph.run(&thread).idempotency_key("payment-2").invoke(Account::update().balance(10))?;
    /// assert_eq!(paid.state().balance, 20);
    /// # Ok(())
    /// # }
    /// ```
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.settings.key = Some(key.into());
        self
    }

    /// Persists the messages that nodes and tasks stream, as far as they have arrived, at an interval: those that a
    /// crash or a cancelled run cuts off are partial messages of the thread. See
    /// [`MessageStream::persist_every`](crate::task::MessageStream::persist_every). Default: they are not persisted.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Chat { #[channel(messages)] messages: Messages }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Chat>::new()
    ///     .node("model", |_: &Chat, context: &Context| {
    ///         let mut answer = context.message_stream();
    ///         answer.push("The Gasthof ");
    ///         Err("the line is dead".into())
    ///         # as NodeResult<ChatUpdate>
    ///     })
    ///     .edge(START, "model")
    ///     .compile()?;
    /// let thread = Store::memory().thread("trip")?;
    /// let run = graph.run(&thread).persist_messages_every(Duration::ZERO);
    /// assert!(run.invoke(Chat::update()).is_err());
    ///
    /// let shown = graph.get_state(&thread)?.tasks[0].partial.clone().expect("the answer so far");
    /// assert_eq!(shown.message.text(), "The Gasthof ");
    /// thread.partial()?.expect("the same").keep()?;
    /// assert_eq!(graph.get_state(&thread)?.values.messages.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn persist_messages_every(mut self, interval: Duration) -> Self {
        self.settings.message_interval = Some(interval);
        self
    }

    /// Stores the time at which each task ended, also in subgraphs, so that the steps of a thread tell how long each of
    /// several parallel tasks took. It costs about 40 bytes a task. Default: `false`; the log has the times of
    /// checkpoints, calls and failed attempts.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Trip { #[channel(append)] found: List<String> }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Trip>::new()
    ///     .node("trains", |_: &Trip| Ok(Trip::update().found(["09:02".to_owned()])))
    ///     .node("hotels", |_: &Trip| Ok(Trip::update().found(["Gasthof".to_owned()])))
    ///     .edge(START, "trains")
    ///     .edge(START, "hotels")
    ///     .compile()?;
    /// let thread = Store::memory().thread("trip")?;
    /// graph.run(&thread).record_ends(true).invoke(Trip::update())?;
    /// for step in thread.steps()? {
    ///     let step = step?;
    ///     assert!(step.has_own_end && step.duration().is_some(), "{step:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn record_ends(mut self, recorded: bool) -> Self {
        self.settings.records_ends = recorded;
        self
    }

    /// Sets the result of a race that the run loses against another writer of the thread. With [`OnConflict::Branch`]
    /// the superstep that was refused is stored as a branch off the checkpoint it was made on, which
    /// [`Outcome::branch`] names, and the head stays where the other writer moved it. The run ends there: it is done if
    /// that superstep was the last one, else drained, and [`Thread::switch`](crate::history::Thread::switch) and
    /// [`Input::Continue`] go on with it. Each commit of the run is awaited. Default: [`OnConflict::Refuse`], an error
    /// with [`Error::is_conflict`].
    ///
    /// Retained are whole supersteps: a race that is lost while a task of a parallel superstep or a called task ends,
    /// or inside a subgraph, is a conflict.
    ///
    /// # Example
    /// ```
    /// use annals::history::OnConflict;
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Chat { #[channel(messages)] messages: Messages }
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("trip")?;
    /// let window = thread.clone();
    /// let graph = StateGraph::<Chat>::new()
    ///     .node("model", move |_: &Chat| {
    ///         window.append("messages", [Message::human("from the other window")])?;
    ///         Ok(Chat::update().messages([Message::ai("a long answer")]))
    ///     })
    ///     .edge(START, "model")
    ///     .compile()?;
    /// let run = graph.run(&thread).on_conflict(OnConflict::Branch);
    /// let ended = run.invoke(Chat::update().messages([Message::human("hi")]))?;
    ///
    /// let branch = thread.branch(ended.branch().expect("the race was lost"))?;
    /// assert_eq!(branch.last.state::<Chat>()?.messages.last().unwrap().text(), "a long answer");
    /// let head = thread.with_state::<Chat>().state()?;
    /// assert_eq!(head.messages.last().unwrap().text(), "from the other window");
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.settings.on_conflict = on_conflict;
        self
    }

    /// Calls `listener` for each [`RunEvent`] of the run: its begin, each failed attempt of a node or a called task,
    /// and its end or wait. It is called on the threads of the run, which wait for it, and must not panic. With
    /// [`CompiledGraph::with_config`] it holds for all runs of the graph, those of a [`Worker`](crate::Worker)
    /// included. Graphs inside nodes report their failed attempts alone.
    ///
    /// # Example
    /// ```
    /// use std::sync::{Arc, Mutex};
    ///
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Order { #[channel(last)] paid: bool }
    ///
    /// # fn main() -> Result<()> {
    /// let seen = Arc::new(Mutex::new(Vec::new()));
    /// let log = Arc::clone(&seen);
    /// let graph = StateGraph::<Order>::new()
    ///     .node("pay", |_: &Order, ctx: &Context| Ok(Order::update().paid(ctx.interrupt("pay?")? == "yes")))
    ///     .edge(START, "pay")
    ///     .compile()?
    ///     .with_config(|run| run.on_event(move |event| log.lock().unwrap().push(event.kind.as_str())));
    /// let thread = Store::memory().thread("order-17")?;
    /// graph.invoke(&thread, Order::update())?;
    /// graph.invoke(&thread, Command::resume("yes"))?;
    /// assert_eq!(*seen.lock().unwrap(), ["started", "waiting", "resumed", "done"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_event(mut self, listener: impl Fn(&RunEvent) + Send + Sync + 'static) -> Self {
        self.settings.listener = Some(Arc::new(listener));
        self
    }

    /// Lets the run continue one that a graph with another [version](crate::graph::StateGraph::version) or fingerprint
    /// began, and lets its calls of tasks return stored results of other arguments. Default: no.
    pub fn allow_changed_graph(mut self, allowed: bool) -> Self {
        self.settings.allows_changes = allowed;
        self
    }

    /// Lets the run claim its thread for the time that it runs, so that two runs never work on one thread at the same
    /// time. Another run on the thread ends with [`StoreError::Leased`](crate::store::StoreError::Leased), an error of
    /// the kind `Busy`, before one of its nodes starts, or [waits](Run::wait_for_lease). The lease expires after
    /// `duration`, 30 s for example ([`LEASE_DEFAULT`](crate::base::limits::LEASE_DEFAULT)). It is renewed while the
    /// run lasts and released when the run ends, waits for a resume value, or is dropped. If the process dies, the next
    /// run takes over when the lease has expired; on Linux at once, as far as the process was on the same machine. A
    /// run that lost its lease, because its process was stopped for too long, starts no further task, and its commits
    /// are refused with [`StoreError::LeaseLost`](crate::store::StoreError::LeaseLost).
    ///
    /// With [`Durability::Exit`], and for a run without an input, the claim is a transaction of its own; else it goes
    /// along with the input, and the release with the last checkpoint. A run without this option takes no lease, and
    /// respects those of others. An edit from outside ([`Thread::update`](crate::history::Thread::update)) needs none:
    /// the run gets a conflict.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Order { #[channel(last)] paid: bool }
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// let thread = store.thread("order-17")?;
    /// let other = store.thread("order-17")?;
    /// let pay = |_: &Order| Ok(Order::update().paid(true));
    /// let plain = StateGraph::<Order>::new().node("pay", pay).edge(START, "pay").compile()?;
    /// let graph = StateGraph::<Order>::new()
    ///     .node("pay", move |_: &Order| {
    ///         let refused = plain.invoke(&other, Order::update()).unwrap_err();
    ///         assert_eq!(refused.kind(), annals_graph::ErrorKind::Busy, "{refused}");
    ///         Ok(Order::update().paid(true))
    ///     })
    ///     .edge(START, "pay")
    ///     .compile()?;
    /// graph.run(&thread).lease(Duration::from_secs(30)).invoke(Order::update())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lease(mut self, duration: Duration) -> Self {
        self.settings.lease = Some(duration);
        self
    }

    /// Waits for the lease of another owner at most for `duration` before the run begins, and takes one of 30 s unless
    /// [`Run::lease`] sets another duration. The claim is a transaction of its own. Default: no wait.
    pub fn wait_for_lease(mut self, duration: Duration) -> Self {
        self.settings.lease_wait = Some(duration);
        self.settings.lease = self.settings.lease.or(Some(LEASE_DEFAULT));
        self
    }

    /// Sets whether a stream also shows what happens in graphs inside nodes. Default: no.
    pub fn subgraphs(mut self, shown: bool) -> Self {
        self.settings.subgraphs = shown;
        self
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// As [`CompiledGraph::invoke`].
    pub fn invoke<M>(mut self, input: impl IntoInput<S, M>) -> Result<Outcome<S>, Error> {
        let (mut input, mut receives) = (input.into_input(), Receives::default());
        loop {
            let begun = begin(&self.graph.graph, &self.target, input, &self.settings, EventMask::default())?;
            let outcome = finish(self.graph, &self.target, Driver::new(begun).run()?)?;
            match receives.go_on(&self.target, &outcome, &self.settings)? {
                Some(settings) => (self.settings, input) = (settings, Input::Continue),
                None => return Ok(outcome),
            }
        }
    }

    /// Runs to the end without blocking the executor that it is polled by: asynchronous nodes run in this future, the
    /// others on threads, and commits are awaited. Dropping the future cancels the run; the thread can be continued.
    ///
    /// # Errors
    /// As [`CompiledGraph::invoke`]; [`RunError::NoTimer`] if a node or a superstep has a timeout but the run has no
    /// timer.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Page { #[channel(last)] url: String, #[channel(last)] text: String }
    ///
    /// async fn fetch(page: &Page) -> NodeResult<PageUpdate> {
    ///     Ok(Page::update().text(format!("the text of {}", page.url)))
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Page>::new().node("fetch", fetch).edge(START, "fetch").compile()?;
    /// let run = async {
    ///     let done = graph.ainvoke((), Page::update().url("a.example")).await?;
    ///     assert_eq!(done.state().text, "the text of a.example");
    ///     Ok::<(), annals_graph::Error>(())
    /// };
    /// # annals_graph::block_on(run)
    /// # }
    /// ```
    pub async fn ainvoke<M>(mut self, input: impl IntoInput<S, M>) -> Result<Outcome<S>, Error> {
        let (mut input, mut receives) = (input.into_input(), Receives::default());
        self.settings.find_timer(&self.graph.graph)?;
        loop {
            let mask = EventMask::default();
            let begun = begin_async(&self.graph.graph, &self.target, input, &self.settings, mask).await?;
            let outcome = finish(self.graph, &self.target, AsyncDriver::new(begun).run().await?)?;
            match receives.go_on_async(&self.target, &outcome, &self.settings).await? {
                Some(settings) => (self.settings, input) = (settings, Input::Continue),
                None => return Ok(outcome),
            }
        }
    }
}

impl<S> fmt::Debug for Run<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("target", &self.target)
            .field("durability", &self.settings.durability)
            .finish_non_exhaustive()
    }
}
