//! Beginning a run: its thread is claimed, its head loaded and its machine made.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::{CheckpointId, Clock, IdSource, Map, Namespace, RunId, SystemClock};
use crate::drive::io::feed::Feed;
use crate::drive::io::pool::{in_task, on_store_thread, unblock};
use crate::drive::worker::lease::{Claimed, Renewal};
use crate::error::Error;
use crate::exec::{EventMask, Head, Machine, Recording, Request, RunError, RunStart, resume_values_by_id};
use crate::graph::{Command, DEFAULT_NAME, Graph};
use crate::history::Thread;
use crate::limits::RECURSION_LIMIT_DEFAULT;
use crate::run::{Loaded, RootStart, Session};
use crate::state::erased::resolve;
use crate::store::{CheckpointRef, ThreadInfo};
use crate::task::{Host, Scope};

use super::active_run::ActiveRun;
use super::builder::{Durability, RunSettings};
use super::commits::RunCommits;
use super::drawing::store_drawing;
use super::events::{EndReport, RunEvents, begin_kind};
use super::graph_version::{verify_graph, with_code};
use super::host::RunHost;
use super::idempotency::Earlier;
use super::input::Input;

use super::signals;
use super::target::RunTarget;
use super::{load, subgraph};

pub(in crate::drive) async fn begin_async(
    graph: &Arc<Graph>,
    target: &RunTarget,
    input: Input,
    settings: &RunSettings,
    events: EventMask,
) -> Result<ActiveRun, Error> {
    let thread = match &target.inside {
        Some(context) => subgraph::host_of(context).and_then(|host| host.thread.clone()),
        None => target.thread.clone(),
    };
    let Some(thread) = thread else { return begin(graph, target, input, settings, events) };
    let (graph, target, settings) = (Arc::clone(graph), target.clone(), settings.clone());
    let waits_for_lease = settings.lease_wait.is_some();
    let begin = move || begin(&graph, &target, input, &settings, events);
    // A head that is not in memory is read from the file.
    if waits_for_lease { on_store_thread(thread.store(), begin).await } else { unblock(thread.store(), begin).await }
}

/// Begins a run: loads its head and makes its machine.
pub(in crate::drive) fn begin(
    graph: &Arc<Graph>,
    target: &RunTarget,
    input: Input,
    settings: &RunSettings,
    events: EventMask,
) -> Result<ActiveRun, Error> {
    if let Some(context) = &target.inside {
        return subgraph::begin(graph, context, input, settings, events);
    }
    let mut start = run_start(graph, input)?;
    check_context(graph, settings.value.as_deref())?;
    let target = &target.outermost()?;
    let (run, mut earlier) = settings.run_id(target.thread.as_ref())?;
    let (mut claimed, mut given, mut from) = (None, None, RootStart::default());
    let (seed, now, store, head, recording) = match &target.thread {
        None => (IdSource::new().random(), SystemClock.now(), None, Head::empty(graph), None),
        Some(thread) => {
            let store = thread.store();
            let loaded =
                load_claimed(graph, thread, target.at.as_ref(), (settings, &start, run), &mut earlier, &mut claimed)?;
            let at = earlier.as_ref().map(Earlier::at).or(target.at.as_ref());
            let named = target.at.is_some() && earlier.is_none();
            let loaded = signals::with_signals(graph, thread, at, &start, loaded)?;
            from = RootStart::new(named, earlier.is_some(), &loaded);
            start = verified_start(thread, start, settings, (run, earlier.as_ref(), named), &loaded)?;
            start = signals::with_partials(graph, start, &loaded, from.addressed);
            given = signals::given(&loaded, from.addressed);
            verify_graph(graph, thread, &loaded.head, &start, (from.addressed, settings.allows_changes))?;
            let metadata = with_graph(settings.metadata.clone(), graph);
            let recording = recording(thread, from.addressed, loaded.newest, run, metadata);
            let recording = Some(outermost_recording(recording, graph, target, from.is_continued))
                .filter(|_| !matches!(start, RunStart::Show));
            if recording.is_some() {
                store_drawing(graph, store);
            }
            (store.mint_seed(), store.now(), Some(store.clone()), loaded.head, recording)
        }
    };
    debug_assert!(store.is_some() || recording.is_none(), "a run without a store records nothing");
    let began = head.checkpoint.zip(target.thread.as_ref()).map(|(checkpoint, thread)| thread.point(checkpoint.id));
    let cancelled = signals::cancelled_end(&start, &head);
    let mut host = settings.host(target.thread.clone(), run, events);
    host.events = RunEvents::new(settings.listener.as_ref(), target.thread.as_ref(), &graph.name, run).map(Arc::new);
    let host = Arc::new(host);
    let begins = begin_kind(&start, host.events.is_some() && head.is_asleep());
    host.wait_for_locks();
    host.session.lock().lease = claimed.as_mut().and_then(Claimed::take);
    let renewal = Renewal::begin(&host, &settings.control, began.as_ref());
    host.session.lock().begin(began, (from.replays(&start), matches!(start, RunStart::Input(_))), &target.named);
    let request = Request {
        interrupt_before: settings.breakpoints(graph, "before")?,
        interrupt_after: settings.breakpoints(graph, "after")?,
        strict_resume: settings.strict_resume == Some(true),
        saving: host.session.lock().saving(),
        recursion_limit: host.recursion_limit,
        step_timeout: settings.step_timeout(graph),
        scope: settings.scope(graph, &host, &start, from, given),
        start,
        events,
        output: settings.output_fields(graph)?,
        recording,
        seed,
        namespace: Namespace::root(),
        above: None,
    };
    let machine = signals::shown(Machine::new(Arc::clone(graph), head, request, now)?, cancelled);
    let end = EndReport::begin(host.events.clone(), begins);
    Ok(ActiveRun::new(machine, store, host, None, events).with(renewal, end))
}

/// Returns the start of a run on a loaded head, with its key, and verifies that the run may continue the thread.
fn verified_start(
    thread: &Thread,
    start: RunStart,
    settings: &RunSettings,
    (run, earlier, named): (RunId, Option<&Earlier>, bool),
    loaded: &Loaded,
) -> Result<RunStart, Error> {
    let start = match earlier {
        Some(earlier) => earlier.start(loaded),
        None if run.is_of_key() => start.with_key(&loaded.head, run),
        None => start,
    };
    signals::verify_continues(thread, &start, loaded, named || settings.strict_resume.is_some())?;
    if !loaded.head.recorded.is_empty() || earlier.is_none() {
        settings.verify_free(thread, &start, loaded.lease.as_ref())?;
    }
    Ok(start)
}

/// Returns the start of a run with an input.
fn run_start(graph: &Graph, input: Input) -> Result<RunStart, RunError> {
    Ok(match input {
        Input::Update(writes) => RunStart::Input(resolve(&*graph.layout, writes)?),
        Input::Command(command) => RunStart::Command(command),
        Input::Continue => RunStart::Continue,
    })
}

/// Claims the thread of a run and loads its head, in this order: a head that was loaded before the claim may be old. A
/// repeated run that has ended claims nothing.
fn load_claimed(
    graph: &Arc<Graph>,
    thread: &Thread,
    at: Option<&CheckpointRef>,
    (settings, start, run): (&RunSettings, &RunStart, RunId),
    earlier: &mut Option<Earlier>,
    claimed: &mut Option<Claimed>,
) -> Result<Loaded, Error> {
    let found = match earlier.take() {
        Some(found) => found,
        None => {
            *claimed = Some(settings.claim(thread, start)?);
            let loaded = match settings.loaded.take() {
                Some(loaded) => loaded,
                None => load::load(graph, thread, at)?,
            };
            // Another process may have begun and ended a run with the key since the first look for it. A commit after
            // the head was loaded is a conflict.
            let Some(found) = Earlier::of(thread, run)? else { return Ok(loaded) };
            *claimed = None;
            found
        }
    };
    let earlier = earlier.insert(found);
    let at = Some(earlier.at());
    let loaded = load::load(graph, thread, at)?;
    match earlier.start(&loaded) {
        repeated @ RunStart::Repeat(_) if !loaded.head.recorded.is_empty() => {
            *claimed = Some(settings.claim(thread, &repeated)?);
            load::load(graph, thread, at)
        }
        _ => Ok(loaded),
    }
}

impl RunSettings {
    fn host(&self, thread: Option<Thread>, run: RunId, wants: EventMask) -> RunHost {
        let nested = in_task();
        let holds = self.durability == Some(Durability::Exit);
        RunHost {
            thread,
            metadata: self.metadata.clone(),
            durability: self.durability.unwrap_or_default(),
            recursion_limit: self.recursion_limit.unwrap_or(RECURSION_LIMIT_DEFAULT),
            concurrency_max: self.concurrency_max.unwrap_or(usize::MAX),
            wants,
            calling: Default::default(),
            polls: Default::default(),
            inline: nested || self.concurrency_max == Some(1),
            // A run whose tasks run on its own thread cannot read their events meanwhile.
            feed: if nested { Arc::new(Feed::unbounded()) } else { Arc::default() },
            timer: self.timer.clone(),
            message_interval: self.message_interval,
            events: None,
            on_conflict: self.on_conflict,
            commits: Mutex::new(RunCommits::new(self.key.is_some() || self.lease.is_some())),
            session: Mutex::new(Session::new(run, self.metadata.clone(), holds)),
        }
    }

    fn scope(
        &self,
        graph: &Graph,
        host: &Arc<RunHost>,
        start: &RunStart,
        from: RootStart,
        given: Option<Map>,
    ) -> Arc<Scope> {
        let mut scope = Scope::new(Arc::clone(host) as Arc<dyn Host>);
        scope.control = self.control.clone();
        scope.value = self.value.clone();
        scope.kv = self.kv.clone().or_else(|| host.thread.as_ref().map(|thread| thread.store().kv()));
        scope.cache = graph.cache.clone();
        (scope.exact, scope.given) = (self.key.is_some(), given);
        scope.records_ends = self.records_ends;
        scope.holds = self.durability == Some(Durability::Exit);
        (scope.addressed, scope.anew) = (from.addressed, from.is_continued);
        scope.allows_changes = self.allows_changes;
        if let RunStart::Command(Command { resume, .. }) | RunStart::Repeat(resume) = start {
            scope.resume_values = resume.as_ref().and_then(resume_values_by_id).cloned().map(Arc::new);
        }
        Arc::new(scope)
    }
}

/// Checks that a run has the context value that its graph asks for.
pub(super) fn check_context(graph: &Graph, value: Option<&(dyn Any + Send + Sync)>) -> Result<(), RunError> {
    match graph.misses_context(value) {
        Some((graph, expected)) => {
            Err(RunError::NoContext { graph: graph.to_owned(), expected, found: value.is_some() })
        }
        None => Ok(()),
    }
}

/// Returns the metadata of the checkpoints of a graph: with its name, by which listings and workers find its threads,
/// unless it has none.
pub(super) fn with_graph(metadata: Option<String>, graph: &Graph) -> Option<String> {
    if graph.name == DEFAULT_NAME {
        return metadata;
    }
    let Some(text) = &metadata else {
        let name = serde_json::to_string(&*graph.name).ok()?;
        return Some(["{\"", ThreadInfo::GRAPH, "\":", &name, "}"].concat());
    };
    let Ok(serde_json::Value::Object(mut members)) = serde_json::from_str(text) else { return metadata };
    members.entry(ThreadInfo::GRAPH).or_insert_with(|| graph.name.as_str().into());
    Some(serde_json::Value::Object(members).to_string())
}

pub(super) fn recording(
    thread: &Thread,
    addressed: bool,
    newest: Option<CheckpointId>,
    run: RunId,
    metadata: Option<String>,
) -> Recording {
    Recording {
        thread: thread.id().clone(),
        namespace: thread.namespace().clone(),
        head: newest,
        run,
        metadata,
        marked_metadata: None,
        addressed,
        is_continued: false,
        parents: [].into(),
        around: [].into(),
        forked_from: None,
    }
}

/// Adds the members of the outermost graph to a recording: the version of its code, and the named parent graphs.
fn outermost_recording(mut recording: Recording, graph: &Graph, target: &RunTarget, is_continued: bool) -> Recording {
    recording.marked_metadata = with_code(recording.metadata.as_deref(), graph);
    recording.is_continued = is_continued;
    if target.at.is_some() {
        recording.parents = Arc::clone(&target.named);
    }
    recording
}
