//! A workflow that was read from a file, and its runs: in this process, or enqueued for workers.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annals_graph::annals::base::{Clock, Map, Namespace, SystemClock, Value};
use annals_graph::annals::history::Thread;
use annals_graph::annals::state::DynState;
use annals_graph::annals::store::Store;
use annals_graph::graph::{Command, CompiledGraph, Drawing};
use annals_graph::runs::{Queue, Queued, SnapshotRuns, choose_resume_value};
use annals_graph::task::{Interrupt, RunControl, TaskInfo};
use annals_graph::{
    Durability, Input, IntoInput, Outcome, RunEvent, Schedule, Schedules, StreamData, StreamMode, TaskStart,
};

use crate::error::{Error, Result};
use crate::limits::{DEPTH_MAX, LEASE, SUPERSTEPS_MAX, WAIT_LOOK};
use crate::notify::NotifyCommands;
use crate::secrets::SecretSource;
use crate::spec::Outputs;
use crate::{build, nodes, parse};

/// A workflow from a file.
///
/// # Example
/// ```
/// use annals_flow::{Flow, FlowEnd, FlowInput};
/// use annals_graph::prelude::*;
///
/// # fn main() -> annals_flow::Result<()> {
/// let flow = Flow::parse("sum.toml", r#"
///     channels = { n = "sum" }
///     input = { n = 1 }
///     [nodes.add]
///     set = { n = 2 }
///     [nodes.double]
///     after = "add"
///     set = { n = "= n" }
/// "#)?;
/// let thread = Store::memory().thread("t")?;
/// let FlowEnd::Done { state } = flow.run(&thread, FlowInput::new(), &mut |_| ())? else { panic!("it has ended") };
/// assert_eq!(state["n"], Value::from(6));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Flow {
    graph: CompiledGraph<DynState>,
    description: Option<String>,
    channels: Vec<String>,
    input: Map,
    outputs: Outputs,
    /// The names of the secrets, those of workflows in it included.
    secrets: Vec<String>,
    source: Arc<SecretSource>,
    schedule: Option<Schedule>,
    notifier: Option<Arc<NotifyCommands>>,
}

/// The input of [`Flow::run`]: nothing, values of channels, or a resume value.
#[derive(Clone, Debug, Default)]
pub struct FlowInput {
    values: Option<Map>,
    resume: Option<Vec<Value>>,
    restart: bool,
    control: RunControl,
}

impl FlowInput {
    /// Returns an input without values: the run starts with the defaults of the file, or continues.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets values of channels, which replace the defaults of the file. They are used by a run that starts.
    pub fn values(mut self, values: Map) -> Self {
        self.values = Some(values);
        self
    }

    /// Sets the resume value of the first open interrupt.
    pub fn resume(self, value: impl Into<Value>) -> Self {
        self.resume_readings([value.into()])
    }

    /// Sets the readings of a text that a person has typed as the resume value of the first open interrupt, as `12` is
    /// a number and a text: the first that has the type of the interrupt is the resume value, without a type the first.
    ///
    /// # Example
    /// ```
    /// use annals_flow::{Flow, FlowEnd, FlowInput};
    /// use annals_graph::prelude::*;
    ///
    /// # fn main() -> annals_flow::Result<()> {
    /// let flow = Flow::parse("tag.toml", r#"
    ///     channels = { tag = "last" }
    ///     [nodes.ask]
    ///     ask = "Which tag?"
    ///     answer = "text"
    ///     into = "tag"
    /// "#)?;
    /// let thread = Store::memory().thread("t")?;
    /// let typed = FlowInput::new().resume_readings([Value::from(12), Value::from("12")]);
    /// flow.run(&thread, FlowInput::new(), &mut |_| ())?;
    /// let FlowEnd::Done { state } = flow.run(&thread, typed, &mut |_| ())? else { panic!("it has ended") };
    /// assert_eq!(state["tag"], Value::from("12"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn resume_readings(mut self, readings: impl IntoIterator<Item = Value>) -> Self {
        self.resume = Some(readings.into_iter().collect());
        self
    }

    /// Runs a thread whose run has ended once more, on its state. Without it such a thread is only read.
    pub fn restart(mut self, restart: bool) -> Self {
        self.restart = restart;
        self
    }

    /// Sets the control by which another thread cancels the run: its commands are killed, and the run ends with
    /// [`Error::Stopped`]. The tasks that have ended are stored, so the run can be continued.
    pub fn control(mut self, control: &RunControl) -> Self {
        self.control = control.clone();
        self
    }
}

/// The progress of a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FlowEvent {
    /// A node starts.
    Started {
        /// The node; in a workflow of a workflow with the names around it, as in `outer/inner`.
        node: String,
        /// The item of a list that the node maps, if the event is about one item. In a workflow that is run for an item
        /// it is that item.
        item: Option<Value>,
    },
    /// A node has ended, and its result is stored.
    Finished {
        /// The node.
        node: String,
        /// The item, as of a start.
        item: Option<Value>,
    },
    /// A node has failed.
    Failed {
        /// The node.
        node: String,
        /// The item, as of a start.
        item: Option<Value>,
        /// The message of its error.
        error: String,
    },
    /// A node waits for a resume value or a time; it has not ended.
    Interrupted {
        /// The node.
        node: String,
        /// The item, as of a start.
        item: Option<Value>,
    },
    /// The run waits for a node with `wait`.
    Waiting {
        /// The time for which it waits.
        time: Duration,
    },
}

/// The end of [`Flow::run`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FlowEnd {
    /// The run has ended.
    Done {
        /// The values of `outputs` in the file; without them the channels that are set.
        state: Map,
    },
    /// The run waits for resume values.
    Interrupted {
        /// The channels that are set.
        state: Map,
        /// The open interrupts; the first takes the next resume value.
        interrupts: Vec<Interrupt>,
    },
}

impl Flow {
    /// Reads a workflow from a file: JSON if its name ends with `.json`, else TOML. Commands run in its folder.
    ///
    /// # Errors
    /// [`Error::File`] with all problems of the file or of a workflow it names, [`Error::Io`], [`Error::FileTooLong`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        parse::read(path.as_ref(), 0).and_then(Self::new)
    }

    /// Reads a workflow from a text as if it stood in a file of this name. The file need not exist.
    ///
    /// # Errors
    /// As [`Flow::open`].
    pub fn parse(path: impl AsRef<Path>, text: &str) -> Result<Self> {
        let path = path.as_ref();
        if text.len() > crate::limits::FILE_BYTES_MAX {
            return Err(Error::FileTooLong { path: path.to_owned() });
        }
        let absolute = std::path::absolute(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let folder = absolute.parent().map(Path::to_owned).unwrap_or_default();
        parse::parse(text, path, folder, 0).and_then(Self::new)
    }

    fn new(mut spec: crate::spec::FlowSpec) -> Result<Self> {
        let (description, input) = (spec.description.take(), std::mem::take(&mut spec.input));
        let channels = spec.channels.iter().map(|(channel, _)| channel.clone()).collect();
        let outputs = std::mem::take(&mut spec.outputs);
        let (secrets, source) = (spec.all_secrets(), Arc::new(SecretSource::default()));
        let schedule = spec.schedule.take().map(|schedule| schedule.update(input.clone()));
        let (notify, folder, patterns) = (std::mem::take(&mut spec.notify), spec.folder.clone(), spec.redact.clone());
        let notifier = NotifyCommands::new(notify, folder, spec.secrets.clone(), patterns.into(), Arc::clone(&source));
        let graph = build::graph(spec, &source, &[]).map_err(annals_graph::Error::from)?;
        // These hold for the runs of a worker as well.
        let graph =
            graph.with_config(|run| run.durability(Durability::Sync).recursion_limit(SUPERSTEPS_MAX).record_ends(true));
        let flow = Self { graph, description, channels, input, outputs, secrets, source, schedule, notifier };
        Ok(if flow.notifier.is_some() { flow.on_event(|_| ()) } else { flow })
    }

    /// Returns the name: that in the file, or the name of the file without its end.
    pub fn name(&self) -> &str {
        self.graph.name()
    }

    /// Returns the description in the file.
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Returns the graph, which can be run like any other. A [`Worker`](annals_graph::Worker) that registers it runs
    /// the workflow's runs that are due: those that were enqueued or left by a process that died, and those whose sleep
    /// has ended.
    pub fn graph(&self) -> &CompiledGraph<DynState> {
        &self.graph
    }

    /// Returns the drawing of the graph; nodes of workflows in it are unfolded to `depth` levels, at
    /// most 32.
    pub fn drawing(&self, depth: usize) -> Drawing {
        self.graph.get_graph(depth.min(DEPTH_MAX))
    }

    /// Runs the workflow on a thread until its end or an interrupt. Each result is committed before the next node
    /// starts. A thread whose run was killed or has failed continues with the tasks that had not ended; one whose run
    /// has ended is only read. `on_event` is told the progress. The run has a lease, so that no worker runs the thread
    /// at the same time.
    ///
    /// # Errors
    /// [`Error::Run`] if a node fails or the store does, or, as a busy error, if another process runs the thread;
    /// [`Error::UnknownChannel`]; [`Error::NotWaiting`] for a resume value without an open interrupt, and
    /// [`Error::ResumeValue`] for one of another type than the interrupt asks for, which stays open;
    /// [`Error::Outputs`]; [`Error::MissingSecret`], before anything runs.
    pub fn run(&self, thread: &Thread, input: FlowInput, on_event: &mut dyn FnMut(FlowEvent)) -> Result<FlowEnd> {
        let FlowInput { values, mut resume, restart, control } = input;
        self.known(values.as_ref())?;
        self.source.read(&self.secrets).map_err(|missing| Error::MissingSecret { name: missing.0 })?;
        let head = thread.head()?;
        let is_waiting = head.as_ref().map(|head| head.interrupts()).transpose()?.is_some_and(|open| !open.is_empty());
        if resume.is_some() && !is_waiting {
            return Err(Error::NotWaiting);
        }
        let is_ended = head.as_ref().is_some_and(|head| head.next().next().is_none());
        let mut next = match head {
            None => IntoInput::<DynState, _>::into_input(nodes::input(&self.input, values)),
            Some(_) if is_ended && !restart => {
                return self.done(&self.graph.get_state(thread)?.values);
            }
            Some(_) if is_ended => IntoInput::<DynState, _>::into_input(nodes::input(&self.input, values)),
            Some(_) => Input::Continue,
        };
        loop {
            let outcome = self.drive(thread, next, &control, on_event)?;
            let state = outcome.state().to_map();
            let wake_at = outcome.wake_at();
            let interrupts = match outcome {
                Outcome::Done(state) => return self.done(&state),
                Outcome::Interrupted { interrupts, .. } => interrupts,
                Outcome::Drained { reason, .. } | Outcome::Cancelled { reason, .. } => {
                    return Err(Error::Stopped { reason });
                }
                _ => return Err(Error::Stopped { reason: "an unknown outcome".into() }),
            };
            let open: Vec<Interrupt> = interrupts.into_iter().filter(|open| open.wake_at.is_none()).collect();
            next = match (open.first(), resume.take(), wake_at) {
                (Some(first), Some(readings), _) => {
                    let value = choose_resume_value(first.response_schema.as_ref(), readings, &first.id)
                        .map_err(|misfit| Error::resume_value(first, misfit))?;
                    IntoInput::<DynState, _>::into_input(Command::resume_by_id([(first.id.as_str(), value)]))
                }
                (Some(_), None, _) => return Ok(FlowEnd::Interrupted { state, interrupts: open }),
                (None, Some(_), _) => return Err(Error::NotWaiting),
                (None, None, Some(wake_at)) => {
                    wait_until(wake_at, &control, on_event);
                    Input::Continue
                }
                (None, None, None) => return Ok(FlowEnd::Interrupted { state, interrupts: open }),
            };
        }
    }

    /// Returns the end of a run with its outputs.
    fn done(&self, state: &DynState) -> Result<FlowEnd> {
        let state = self.outputs.of(state).map_err(|error| Error::Outputs { reason: error.to_string() })?;
        Ok(FlowEnd::Done { state })
    }

    /// Calls `listener` for each [`RunEvent`] of the runs of the workflow, as [`annals_graph::Run::on_event`] does.
    ///
    /// # Example
    /// ```
    /// use annals_flow::{Flow, FlowInput};
    /// use annals_graph::RunEventKind;
    /// use annals_graph::prelude::*;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let text = "channels = { n = 'last' }\n[nodes.a]\nset = { n = 1 }";
    /// let flow = Flow::parse("tell.toml", text)?.on_event(|event| {
    ///     if let RunEventKind::LockWait { .. } = event.kind {
    ///         eprintln!("{event}");
    ///     }
    /// });
    /// flow.run(&Store::memory().thread("t")?, FlowInput::new(), &mut |_| {})?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on_event(mut self, listener: impl Fn(&RunEvent) + Send + Sync + 'static) -> Self {
        let notifier = self.notifier.clone();
        self.graph = self.graph.with_config(|run| {
            run.on_event(move |event| {
                listener(event);
                if let Some(notifier) = &notifier {
                    notifier.handle(event);
                }
            })
        });
        self
    }

    /// Calls `listener` with the reason for which a command of `notify` in the file failed; the first call counts. The
    /// run goes on.
    #[must_use]
    pub fn on_notify_error(self, listener: impl Fn(&str) + Send + Sync + 'static) -> Self {
        if let Some(notifier) = &self.notifier {
            notifier.on_error(listener);
        }
        self
    }

    /// Returns the schedule in the file, which has the name of the workflow.
    pub fn schedule(&self) -> Option<&Schedule> {
        self.schedule.as_ref()
    }

    /// Adds the schedule of the file to a store, where the workers find it, in place of the one that the workflow had.
    /// Without a schedule in the file that one is removed. A pause stays, and an equal schedule is not written again.
    ///
    /// # Errors
    /// [`Error::Run`] as [`Schedules::add`].
    ///
    /// # Example
    /// ```
    /// use annals_flow::Flow;
    /// use annals_graph::Schedules;
    /// use annals_graph::prelude::*;
    ///
    /// # fn main() -> annals_flow::Result<()> {
    /// let text = "name = 'sync'\nschedule = { every = '1h' }\nchannels = { n = 'sum' }\n[nodes.a]\nset = { n = 1 }";
    /// let (flow, store) = (Flow::parse("sync.toml", text)?, Store::memory());
    /// flow.add_schedule(&store)?;
    /// assert_eq!(Schedules::of(&store).get("sync")?.as_ref(), flow.schedule());
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_schedule(&self, store: &Store) -> Result<()> {
        let schedules = Schedules::of(store);
        let before = schedules.get(self.name())?.filter(|before| before.graph() == self.name());
        match (&self.schedule, before) {
            (None, None) => {}
            (None, Some(_)) => _ = schedules.remove(self.name())?,
            (Some(schedule), Some(before)) if *schedule == before => {}
            (Some(schedule), before) => {
                let is_paused = before.is_some_and(|before| before.is_paused());
                schedules.add(&schedule.clone().paused(is_paused))?;
            }
        }
        Ok(())
    }

    /// Sets where the values of the secrets of the file come from; the first call counts. A value is read whenever a
    /// node needs it, and is stored nowhere: the outputs and errors of nodes have `***` in its place.
    ///
    /// # Example
    /// ```ignore-windows
    /// use annals_flow::{Flow, FlowEnd, FlowInput};
    /// use annals_graph::prelude::*;
    ///
    /// # fn main() -> annals_flow::Result<()> {
    /// let text = "secrets = ['TOKEN']\nchannels = { said = 'last' }\n[nodes.a]\nrun = 'echo my $TOKEN'\ninto = 'said'";
    /// let flow = Flow::parse("tell.toml", text)?.secrets(|name| (name == "TOKEN").then(|| "s3cret".to_owned()));
    /// let thread = Store::memory().thread("t")?;
    /// let FlowEnd::Done { state } = flow.run(&thread, FlowInput::new(), &mut |_| ())? else { panic!("it has ended") };
    /// assert_eq!(state["said"], Value::from("my ***"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn secrets(self, lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        _ = self.source.set(lookup);
        self
    }

    /// Stores the input of a run without running anything: a worker with [`Flow::graph`] runs it. `values` replace the
    /// defaults of the file; `options` sets delay, priority, deduplication key and metadata. The thread is new, or its
    /// last run has ended.
    ///
    /// # Errors
    /// [`Error::UnknownChannel`]; [`Error::Run`] as [`Queue::enqueue`].
    ///
    /// # Example
    /// ```
    /// use annals_flow::Flow;
    /// use annals_graph::Worker;
    /// use annals_graph::prelude::*;
    ///
    /// # fn main() -> annals_flow::Result<()> {
    /// let flow = Flow::parse("sum.toml", "channels = { n = 'sum' }\ninput = { n = 1 }\n[nodes.add]\nset = { n = 2 }\n")?;
    /// let store = Store::memory();
    /// let queued = flow.enqueue(&store.thread("t")?, None, |queue| queue.priority(5))?;
    /// assert!(queued.is_new);
    /// assert_eq!(Worker::new(&store).register(flow.graph()).run_until_idle()?.continued, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn enqueue(
        &self,
        thread: &Thread,
        values: Option<Map>,
        options: impl FnOnce(Queue) -> Queue,
    ) -> Result<Queued> {
        self.known(values.as_ref())?;
        Ok(self.graph.enqueue_with(thread, nodes::input(&self.input, values), options)?)
    }

    /// Verifies that the channels of an input exist.
    fn known(&self, values: Option<&Map>) -> Result<()> {
        let mut names = values.into_iter().flat_map(|values| values.keys());
        match names.find(|channel| !self.channels.contains(channel)) {
            Some(channel) => Err(Error::UnknownChannel { channel: channel.clone() }),
            None => Ok(()),
        }
    }

    /// Runs until the end or an interrupt.
    fn drive(
        &self,
        thread: &Thread,
        input: Input,
        control: &RunControl,
        on_event: &mut dyn FnMut(FlowEvent),
    ) -> Result<Outcome<DynState>> {
        let run = self.graph.run(thread).subgraphs(true).control(control).lease(LEASE);
        // On Linux the death of the process before is seen at once; elsewhere its lease has to expire.
        let run = if cfg!(target_os = "linux") { run } else { run.wait_for_lease(LEASE + WAIT_LOOK) };
        let mut stream = run.stream(input, &[StreamMode::Tasks])?;
        let mut items = RunningItems::default();
        for part in &mut stream {
            let part = part?;
            match part.data {
                StreamData::TaskStart(start) => {
                    items.add(&start);
                    let (node, item) = items.named(&start.task, &part.namespace);
                    on_event(FlowEvent::Started { node, item });
                }
                StreamData::TaskEnd(end) => {
                    let (node, item) = items.named(&end.task, &part.namespace);
                    match end.error {
                        Some(error) => on_event(FlowEvent::Failed { node, item, error }),
                        None if end.interrupts.is_empty() => on_event(FlowEvent::Finished { node, item }),
                        None => on_event(FlowEvent::Interrupted { node, item }),
                    }
                    items.remove(&end.task);
                }
                _ => {}
            }
        }
        match stream.outcome() {
            Some(outcome) => Ok(outcome.clone()),
            None => Err(Error::Stopped { reason: "the stream ended before the run".into() }),
        }
    }
}

/// The items of the tasks that map a list and run, by the ids of the tasks.
#[derive(Default)]
struct RunningItems(HashMap<String, Value>);

impl RunningItems {
    /// Adds the item of a task that starts. Only a node that maps a list calls tasks: their arguments are the items.
    fn add(&mut self, start: &TaskStart) {
        let is_call = start.task.path().as_list().and_then(<[Value]>::last) == Some(&Value::Bool(true));
        if let Some(item) = start.input().ok().filter(|_| is_call) {
            self.0.insert(start.task.id().to_string(), item);
        }
    }

    /// Returns the node of a task in a namespace, with the nodes around it, and its item: its own, or that of the
    /// nearest workflow around it.
    fn named(&self, task: &TaskInfo, namespace: &Namespace) -> (String, Option<Value>) {
        let (mut path, mut item) = (String::new(), None);
        for (node, id) in namespace.segments().filter_map(|segment| segment.split_once(':')) {
            match self.0.get(id) {
                // The task of an item has the name of the node that called it.
                Some(around) => item = Some(around),
                None => path.extend([node, "/"]),
            }
        }
        path.push_str(task.node());
        (path, self.0.get(&task.id().to_string()).or(item).cloned())
    }

    fn remove(&mut self, task: &TaskInfo) {
        self.0.remove(&task.id().to_string());
    }
}

fn wait_until(
    wake_at: annals_graph::annals::base::Timestamp,
    control: &RunControl,
    on_event: &mut dyn FnMut(FlowEvent),
) {
    let left = || {
        let micros = wake_at.as_micros().saturating_sub(SystemClock.now().as_micros());
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    };
    on_event(FlowEvent::Waiting { time: left() });
    // In steps: the clock may be set meanwhile.
    while !left().is_zero() && control.cancel_reason().is_none() {
        std::thread::sleep(left().min(WAIT_LOOK));
    }
}
