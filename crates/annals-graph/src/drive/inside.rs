//! Graphs inside nodes: a compiled graph as a node, or called by one.

use std::sync::Arc;

use crate::base::Map;
use crate::base::{CheckpointId, IdSource, Namespace, Value};
use crate::error::Error;
use crate::exec::{EventMask, Machine, Recording, Request, RunError, Saving, Start, Status};
use crate::graph::{
    Around, CallBegan, CompiledGraph, Context, GivenFields, Graph, INPUT, Interrupted, IntoNode, Left, NodeBody,
    NodeFuture, NodeInput, NodeOutput, NodeResult, Persistence, Scope, Signal, StartNode, Takes, VALUE, Work,
    task_namespace, without_tasks,
};
use crate::history::Thread;
use crate::state::erased::{Returned, field_of, returned_writes, shared_writes};
use crate::state::{BoxWrite, StateRef, Writes};
use crate::store::StoreError;

use super::begun::Begun;
use super::blocking::Driver;
use super::children::Begins;
use super::host::RunHost;
use super::load::{self, Loaded};
use super::nonblocking::{AsyncDriver, block_on};
use super::pool::unblock;
use super::run::{Durability, Input, Settings, check_context};

/// Where a run inside a task stands.
struct Inside {
    host: Arc<RunHost>,
    namespace: Namespace,
    thread: Option<Thread>,
    /// The number of the call in its attempt.
    call: usize,
    /// How it began in an earlier attempt of its task, if that called it.
    before: Option<CallBegan>,
}

/// Returns the driver around a context; `None` outside a run.
pub(super) fn host_of(context: &Context) -> Option<Arc<RunHost>> {
    Arc::clone(&context.scope().host).into_any().downcast::<RunHost>().ok()
}

impl Inside {
    fn new(graph: &Graph, context: &Context) -> Result<Self, Error> {
        let host = host_of(context).ok_or(RunError::NoStore)?;
        let outer = context.parts();
        let (call, before) = {
            let mut asked = context.asked().lock();
            let call = asked.calls;
            asked.calls += 1;
            (call, asked.begun.iter().find(|(known, _)| *known == call).map(|(_, began)| began.clone()))
        };
        let mut path = task_namespace(&outer.namespace, &outer.node, outer.task);
        if call > 0 {
            path = format!("{path}|{call}");
        }
        if graph.persistence == Persistence::PerThread {
            path = without_tasks(&path);
        }
        let namespace = Namespace::new(path)?;
        // A graph that keeps its state does so also inside a stateless graph.
        let stores = match graph.persistence {
            Persistence::Stateless => false,
            Persistence::PerInvocation => outer.thread.is_some(),
            Persistence::PerThread => true,
        };
        let thread = host.thread.as_ref().filter(|_| stores).map(|thread| thread.with_namespace(namespace.clone()));
        Ok(Self { host, namespace, thread, call, before })
    }
}

/// Sets up a run of a graph inside the task of a context.
///
/// `wants` is what its own caller looks at; the outermost stream may look as well.
pub(super) fn begin(
    graph: &Arc<Graph>,
    context: &Context,
    input: Input,
    settings: &Settings,
    wants: EventMask,
) -> Result<Begun, Error> {
    if settings.key.is_some() {
        let reason = "a graph inside a task is repeated with the run around it".to_owned();
        return Err(RunError::BadKey { reason }.into());
    }
    let inside = Inside::new(graph, context)?;
    let host = Arc::clone(&inside.host);
    // What cannot be read is not tried again as a failure of the node: the run ends.
    begin_on(graph, context, inside, input, settings, wants).inspect_err(|error| {
        error.as_store().into_iter().for_each(|error| host.sequence.end(error));
    })
}

fn begin_on(
    graph: &Arc<Graph>,
    context: &Context,
    inside: Inside,
    input: Input,
    settings: &Settings,
    wants: EventMask,
) -> Result<Begun, Error> {
    let host = Arc::clone(&inside.host);
    let (seed, now, head, recording, resuming) = match &inside.thread {
        None => {
            let now = crate::base::Clock::now(&crate::base::SystemClock);
            (IdSource::new().random(), now, crate::exec::Head::empty(graph), None, false)
        }
        Some(thread) => {
            let (loaded, Begins { at, named, resumes }) = began(graph, context, &inside, thread)?;
            let elsewhere = at.filter(|at| at.thread != *thread.id());
            let mut recording = recorded(context, &host, thread);
            recording.head = loaded.newest;
            recording.addressed = named;
            recording.forked_from = elsewhere;
            (thread.store().mint_seed(), thread.store().now(), loaded.head, Some(recording), resumes)
        }
    };
    let start = match input {
        Input::Update(writes) => {
            let input = crate::state::erased::resolve(&*graph.layout, writes).map_err(RunError::from)?;
            Start::Inside { input, resuming }
        }
        Input::Command(command) => Start::Command(command),
        Input::Continue => Start::Continue,
    };
    let request = Request {
        start,
        recursion_limit: settings.recursion_limit.unwrap_or(host.recursion_limit),
        step_timeout: settings.step_timeout(graph),
        interrupt_before: settings.breakpoints(graph, "before")?,
        interrupt_after: settings.breakpoints(graph, "after")?,
        strict_resume: false,
        saving: match (host.durability, graph.persistence) {
            // What an earlier run left open is open until its end is stored: its question would be found again.
            (Durability::Exit, persistence) if resuming || persistence == Persistence::PerThread => Saving::AtEnd,
            (Durability::Exit, _) => Saving::UnlessDone,
            _ => Saving::Steps,
        },
        events: host.wants.inside().or(wants),
        output: graph.schemas.shown_output(&*graph.layout),
        recording,
        seed,
        scope: scope_inside(graph, context, settings)?,
        namespace: inside.namespace,
        above: Some(context.clone()),
    };
    request.scope.forget_left(|left| left.namespace == request.namespace);
    let machine = Machine::new(Arc::clone(graph), head, request, now)?;
    let store = inside.thread.as_ref().map(|thread| thread.store().clone());
    Ok(Begun::new(machine, store, host, true, wants))
}

/// Returns what a graph inside shares with the run around it: also the cache, the context value and the key-value memory,
/// if it has none of its own.
fn scope_inside(graph: &Graph, context: &Context, settings: &Settings) -> Result<Arc<Scope>, RunError> {
    let scope = context.scope();
    check_context(graph, settings.value.as_deref().or(scope.value.as_deref()))?;
    if graph.cache.is_none() && settings.value.is_none() && settings.kv.is_none() {
        return Ok(Arc::clone(scope));
    }
    Ok(Arc::new(Scope {
        cache: graph.cache.clone().or_else(|| scope.cache.clone()),
        value: settings.value.clone().or_else(|| scope.value.clone()),
        kv: settings.kv.clone().or_else(|| scope.kv.clone()),
        ..Scope::clone(scope)
    }))
}

/// Gets what a graph begins on.
fn began(graph: &Graph, context: &Context, inside: &Inside, thread: &Thread) -> Result<(Loaded, Begins), Error> {
    let host = &inside.host;
    if inside.before.is_some() {
        // The commits of the attempt that failed may be on their way.
        write_submitted(thread, host)?;
    }
    let anew = |at| Begins { at, named: false, resumes: false };
    let left = host.heads.lock().get(thread.namespace()).copied();
    match (&inside.before, left) {
        (Some(CallBegan::On(at)), _) => Ok((load::load_begun(graph, thread, at.as_ref(), host)?, anew(at.clone()))),
        (None, Some(left)) => {
            let begins = anew(Some(thread.point(left)));
            note_began(graph, context, inside.call, &begins);
            Ok((left_of_run(graph, thread, left, host)?, begins))
        }
        _ => {
            let begins = host.children.begin(thread, graph.persistence, context, &host.held)?;
            note_began(graph, context, inside.call, &begins);
            Ok((load::load_begun(graph, thread, begins.at.as_ref(), host)?, begins))
        }
    }
}

/// Gets the head that this very run left, whose commits are not all written yet.
fn left_of_run(graph: &Graph, thread: &Thread, left: CheckpointId, host: &RunHost) -> Result<Loaded, Error> {
    if host.held.newest(thread).is_some() {
        return load::load_begun(graph, thread, Some(&thread.point(left)), host);
    }
    if let Some(loaded) = load::left_by_run(graph, thread, left) {
        return Ok(loaded);
    }
    write_submitted(thread, host)?;
    let loaded = load::load(graph, thread, None)?;
    if loaded.newest == Some(left) {
        return Ok(loaded);
    }
    Err(StoreError::Conflict {
        thread: thread.id().clone(),
        namespace: thread.namespace().clone(),
        expected: Some(left),
        found: loaded.newest,
    }
    .into())
}

/// Waits until what the run has committed can be read.
fn write_submitted(thread: &Thread, host: &RunHost) -> Result<(), Error> {
    let tickets = std::mem::take(&mut *host.tickets.lock());
    thread.store().backend().write_submitted();
    for ticket in tickets {
        ticket.wait()?;
    }
    Ok(())
}

/// Notes how a graph begins, for the next attempt of its task: what one did that has failed does not count, and the graph
/// begins there again with what it is then given; one that keeps no state beyond its task on nothing. But one that goes on
/// in a run that does, so does in the next attempt, as it would in the next run: what was answered is not asked again.
fn note_began(graph: &Graph, context: &Context, call: usize, begins: &Begins) {
    let at = begins.at.clone().filter(|_| graph.persistence == Persistence::PerThread);
    let began = if begins.resumes { CallBegan::Resumed } else { CallBegan::On(at) };
    let mut asked = context.asked().lock();
    if asked.begun.iter().all(|(known, _)| *known != call) {
        asked.begun.push((call, began));
    }
}

/// Says where a run inside the task of a context is recorded, and where those around it stand.
fn recorded(context: &Context, host: &RunHost, thread: &Thread) -> Recording {
    let outer = context.parts();
    let (parents, heads) = match Around::below(outer) {
        Some(Around { parents, heads, .. }) => (parents, heads),
        None => ([].into(), [].into()),
    };
    Recording {
        thread: thread.id().clone(),
        namespace: thread.namespace().clone(),
        head: None,
        run: host.run,
        metadata: host.metadata.clone(),
        parents,
        around: heads,
        addressed: false,
        forked_from: None,
    }
}

/// Ends a run inside the task of a context. What only the graphs around it can deal with goes through the context.
pub(super) fn finish(graph: &Graph, context: &Context, machine: Machine) -> Result<(StateRef, Vec<bool>), Error> {
    let (state, present) = machine.returned();
    let namespace = machine.namespace().clone();
    let stored = machine.stored_head();
    let (status, head) = machine.finish();
    if let Some(head) = stored {
        let tasks = context.with_callers().map(Context::task).collect();
        let keeps = graph.persistence == Persistence::PerThread;
        context.scope().left.lock().push(Left { namespace: namespace.clone(), head, tasks, keeps });
    }
    let host = host_of(context);
    let thread = host.as_ref().and_then(|host| host.thread.as_ref()).filter(|_| stored.is_some());
    let thread = thread.map(|thread| thread.with_namespace(namespace.clone()));
    if let (Some(host), Some(thread), Some(head)) = (&host, &thread, &head) {
        host.held.keep(graph, thread, head);
    }
    if let (Persistence::PerThread, Some(host), Some(stored)) = (graph.persistence, host, stored) {
        // What it began on may be older than the newest one of its namespace.
        let own = head.as_ref().and_then(|head| head.checkpoint).map(|checkpoint| checkpoint.id);
        host.heads.lock().insert(namespace, own.unwrap_or(stored));
        if let (Some(thread), Some(head)) = (thread, head) {
            load::keep(graph, &thread, head);
        }
    }
    let signal = match status {
        Status::Done => return Ok((state, present)),
        Status::Failed(error) => return Err(error.into()),
        Status::Interrupted(interrupts) => Signal::Waiting(interrupts),
        Status::Left(command) => Signal::Parent(command),
        Status::Drained(reason) => Signal::Drained(reason),
        Status::Cancelled(reason) => Signal::Cancelled(reason),
        Status::Running => unreachable!("a driver runs a machine to its end"),
    };
    context.asked().lock().signal = Some(signal);
    Err(RunError::Waiting(Interrupted::new()).into())
}

#[doc(hidden)]
pub struct TakesGraph;

/// A compiled graph as a node: it is given the channels that both graphs have, and returns its output channels.
impl<S, C: Clone + Send + Sync + 'static> IntoNode<S, TakesGraph> for CompiledGraph<C> {
    fn into_node(self) -> NodeBody {
        let graph = self.graph;
        let child = Some(Arc::clone(&graph));
        let graph_started = Arc::clone(&graph);
        let start: StartNode = Arc::new(move |input: NodeInput, context: Context| -> NodeFuture {
            let graph = Arc::clone(&graph_started);
            Box::pin(async move {
                let waits = host_of(&context).is_some_and(|host| host.waits());
                let (begun, given) = if waits {
                    let (graph, context) = (Arc::clone(&graph), context.clone());
                    unblock(move || begin_as_node(&graph, input, &context)).await?
                } else {
                    begin_as_node(&graph, input, &context)?
                };
                let machine = AsyncDriver::new(begun).run().await?;
                end_as_node(&graph, &context, machine, &given)
            })
        });
        let polled = Arc::clone(&start);
        let run = move |input: NodeInput, context: &Context| {
            if graph.step_timeout.is_some() {
                // On one thread a node that is to be stopped would hold up those beside it.
                return block_on(polled(input, context.clone()));
            }
            let (begun, given) = begin_as_node(&graph, input, context)?;
            let machine = Driver::new(begun).run()?;
            end_as_node(&graph, context, machine, &given)
        };
        NodeBody { takes: Takes::Fields, work: Work::Either(Arc::new(run), start), child }
    }
}

/// The lists that a graph as a node was given, by its own fields.
type GivenLists = Vec<(usize, BoxWrite)>;

fn begin_as_node(graph: &Arc<Graph>, input: NodeInput, context: &Context) -> Result<(Begun, GivenLists), Error> {
    let mut given = GivenLists::new();
    let input = match input {
        NodeInput::Fields(fields) if !graph.entry => given_input(graph, &fields, context, &mut given)?,
        NodeInput::Fields(fields) => input_of(graph, fields.to_value().map_err(RunError::from)?)?,
        NodeInput::Value(value) => input_of(graph, value)?,
        NodeInput::State(_) => unreachable!("a graph as a node is given channels or a value"),
    };
    let begun = begin(graph, context, Input::Update(input), &Settings::default(), EventMask::default())?;
    Ok((begun, given))
}

/// Returns the input of a graph from the channels that both have. Lists go in as they are, where the channels fit.
fn given_input(
    graph: &Graph,
    fields: &GivenFields,
    context: &Context,
    given: &mut GivenLists,
) -> Result<Writes, RunError> {
    let layout = &*graph.layout;
    let is_stored = graph.persistence != Persistence::Stateless && context.parts().thread.is_some();
    let mut writes = Writes::default();
    for from in &fields.fields {
        let Ok(field) = field_of(layout, fields.layout.name(*from)) else { continue };
        let write = match fields.give(*from, layout.list_rule(field), is_stored) {
            Some(write) => {
                given.push((field, write.clone()));
                write
            }
            None => layout.write_from_value(field, fields.layout.to_value(&fields.state, *from)?)?,
        };
        writes.push_box(field, write);
    }
    Ok(writes)
}

fn end_as_node(graph: &Graph, context: &Context, machine: Machine, given: &GivenLists) -> NodeResult<NodeOutput> {
    let shared = machine.shared();
    let (state, present) = finish(graph, context, machine)?;
    if graph.entry {
        return match output_of(graph, &state, &present)? {
            Value::Map(map) => Ok(NodeOutput::update(shared_writes(map))),
            Value::Null => Ok(NodeOutput::default()),
            _ => Err(RunError::NotAnUpdate { graph: graph.name.clone() }.into()),
        };
    }
    let layout = &*graph.layout;
    let mut returned = Vec::new();
    for field in graph.schemas.output.iter().copied().filter(|field| present[*field]) {
        // What comes of the list that was given is told by what differs from it, as its slots say.
        let came_of = |(of, write): &&(usize, BoxWrite)| {
            let told = write.told_of().map(|told| &told.of);
            *of == field && shared.iter().any(|(list, from)| *list as usize == field && told == Some(from))
        };
        let merges = layout.list_rule(field).is_some_and(|rule| rule.merges);
        let list = given.iter().find(came_of).filter(|_| merges);
        let value = match list.and_then(|(_, given)| layout.give_back(&state, field, given)) {
            Some(list) => Returned::List(list),
            None => Returned::Value(layout.to_value(&state, field).map_err(RunError::from)?),
        };
        returned.push((layout.name(field).to_string(), value));
    }
    Ok(NodeOutput::update(returned_writes(returned)))
}

/// Returns the input of a graph from the members of a map that are its channels.
pub(super) fn input_of(graph: &Graph, value: Value) -> Result<Writes, Error> {
    let layout = &*graph.layout;
    let mut writes = Writes::default();
    if graph.entry {
        let input = layout.write_from_value(INPUT as usize, value).map_err(RunError::from)?;
        writes.push_box(INPUT as usize, input);
        return Ok(writes);
    }
    let Value::Map(map) = value else { return Ok(writes) };
    for (channel, value) in map {
        if let Ok(field) = field_of(layout, &channel) {
            writes.push_box(field, layout.write_from_value(field, value).map_err(RunError::from)?);
        }
    }
    Ok(writes)
}

/// Returns what a graph returns: the output channels of its state that hold something, or the value of an entrypoint.
pub(super) fn output_of(graph: &Graph, state: &StateRef, present: &[bool]) -> Result<Value, Error> {
    let layout = &*graph.layout;
    if graph.entry {
        return Ok(layout.to_value(state, VALUE as usize).map_err(RunError::from)?);
    }
    let mut map = Map::new();
    for field in graph.schemas.output.iter().filter(|field| present[**field]) {
        map.insert(layout.name(*field).to_string(), layout.to_value(state, *field).map_err(RunError::from)?);
    }
    Ok(Value::Map(map))
}
