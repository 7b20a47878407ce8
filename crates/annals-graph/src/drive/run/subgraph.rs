//! Subgraphs in tasks: a compiled graph as a node, or called by one. *Absent:* decisions about them, which are the
//! session's.

use std::sync::Arc;

use crate::base::{Clock, IdSource, SystemClock};
use crate::drive::io::blocking::Driver;
use crate::drive::io::nonblocking::{AsyncDriver, block_on};
use crate::drive::io::pool::unblock;
use crate::error::Error;
use crate::exec::{EventMask, Head, Machine, Request, RunError, RunStart, verify_due, verify_joins};
use crate::graph::{
    CompiledGraph, Graph, IntoNode, NodeBody, NodeFuture, NodeInput, NodeOutput, NodeResult, Signature, SignatureKind,
    StartNode, Takes, Work,
};
use crate::run::{GivenLists, ReadySubgraph, Subgraph, given_input, input_of, returned_output};
use crate::state::StateRef;
use crate::state::erased::resolve;
use crate::task::{Context, Scope};

use super::active_run::ActiveRun;
use super::begin::check_context;
use super::builder::RunSettings;
use super::host::RunHost;
use super::input::Input;
use super::load;
use super::records::decided_in_run;

/// Returns the driver of the run of a context; `None` outside a run.
pub(super) fn host_of(context: &Context) -> Option<Arc<RunHost>> {
    Arc::clone(&context.scope().host).into_any().downcast::<RunHost>().ok()
}

/// Sets up the run of a subgraph in the task of a context.
///
/// `wants` are the events that its own caller reads; the outermost stream may read them as well.
pub(super) fn begin(
    graph: &Arc<Graph>,
    context: &Context,
    input: Input,
    settings: &RunSettings,
    wants: EventMask,
) -> Result<ActiveRun, Error> {
    if settings.key.is_some() {
        let reason = "a subgraph is repeated with the run of its parent graph".to_owned();
        return Err(RunError::BadKey { reason }.into());
    }
    let host = host_of(context).ok_or(RunError::NoStore)?;
    // A failure to read is not retried as a failure of the node: the run ends.
    begin_on(graph, context, &host, input, settings, wants).inspect_err(|error| {
        error.as_store().into_iter().for_each(|error| host.session.lock().refuse(error));
    })
}

fn begin_on(
    graph: &Arc<Graph>,
    context: &Context,
    host: &Arc<RunHost>,
    input: Input,
    settings: &RunSettings,
    wants: EventMask,
) -> Result<ActiveRun, Error> {
    let subgraph = Subgraph::new(graph, context)?;
    host.session.lock().verify_free(graph, context, &subgraph)?;
    let thread = host.thread.as_ref().filter(|_| subgraph.stores);
    let thread = thread.map(|thread| thread.with_namespace(subgraph.namespace().clone()));
    let (mut resuming, mut recording, mut head) = (false, None, None);
    if let Some(thread) = &thread {
        let decision = host.session.lock().start(graph, context, &subgraph, thread.id());
        let started: ReadySubgraph = decided_in_run(decision, graph, thread, host)??;
        resuming = started.begins.resumes;
        recording = Some(host.session.lock().recording(context, thread.id(), &subgraph, &started));
        head = Some(started.loaded.head);
    }
    let store = thread.as_ref().map(|thread| thread.store().clone());
    let start = match input {
        Input::Update(writes) => {
            let input = resolve(&*graph.layout, writes).map_err(RunError::from)?;
            RunStart::Inside { input, resuming }
        }
        Input::Command(command) => RunStart::Command(command),
        Input::Continue => RunStart::Continue,
    };
    if let Some(head) = &head {
        verify_due(graph, head, &start, true)?;
        if !context.scope().allows_changes {
            verify_joins(graph, head, &start)?;
        }
    }
    let (saving, held) = {
        let mut session = host.session.lock();
        let held = session.started(subgraph.namespace());
        (session.saving_of(graph, resuming), held)
    };
    let request = Request {
        start,
        recursion_limit: settings.recursion_limit.unwrap_or(host.recursion_limit),
        step_timeout: settings.step_timeout(graph),
        interrupt_before: settings.breakpoints(graph, "before")?,
        interrupt_after: settings.breakpoints(graph, "after")?,
        strict_resume: false,
        saving,
        events: host.wants.inside().or(wants),
        output: graph.schemas.shown_output(&*graph.layout),
        recording,
        seed: store.as_ref().map_or_else(|| IdSource::new().random(), |store| store.mint_seed()),
        scope: scope_inside(graph, context, settings)?,
        namespace: subgraph.into_namespace(),
        above: Some(context.clone()),
    };
    let now = store.as_ref().map_or_else(|| SystemClock.now(), |store| store.now());
    let head = head.unwrap_or_else(|| Head::empty(graph));
    let machine = Machine::new(Arc::clone(graph), head, request, now)?;
    Ok(ActiveRun::new(machine, store, Arc::clone(host), Some(held), wants))
}

/// Returns the scope of a subgraph: that of its parent graph, with the cache, the context value and the key-value
/// memory of its own, if it has them.
fn scope_inside(graph: &Graph, context: &Context, settings: &RunSettings) -> Result<Arc<Scope>, RunError> {
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

/// Ends the run of a subgraph in the task of a context.
pub(super) fn finish(graph: &Graph, context: &Context, machine: Machine) -> Result<(StateRef, Vec<bool>), Error> {
    let host = host_of(context).ok_or(RunError::NoStore)?;
    let thread = host.thread.as_ref();
    let ended = host.session.lock().end(graph, context, thread.map(|thread| thread.id()), machine);
    if let (Some(thread), Some((namespace, head))) = (thread, ended.cached) {
        load::keep(graph, &thread.with_namespace(namespace), head);
    }
    Ok(ended.returned?)
}

/// A compiled graph as a node: it is given the channels that both graphs have, and returns its output channels.
impl<S, C: Clone + Send + Sync + 'static> IntoNode<S, Signature<{ SignatureKind::Graph as u8 }>> for CompiledGraph<C> {
    fn into_node(self) -> NodeBody {
        let graph = self.graph;
        let child = Some(Arc::clone(&graph));
        let graph_started = Arc::clone(&graph);
        let start: StartNode = Arc::new(move |input: NodeInput, context: Context| -> NodeFuture {
            let graph = Arc::clone(&graph_started);
            Box::pin(async move {
                let thread = host_of(&context).and_then(|host| host.thread.clone());
                let (begun, given) = match thread {
                    Some(thread) => {
                        let (graph, context) = (Arc::clone(&graph), context.clone());
                        unblock(thread.store(), move || begin_as_node(&graph, input, &context)).await?
                    }
                    None => begin_as_node(&graph, input, &context)?,
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

fn begin_as_node(graph: &Arc<Graph>, input: NodeInput, context: &Context) -> Result<(ActiveRun, GivenLists), Error> {
    let mut given = GivenLists::new();
    let input = match input {
        NodeInput::Fields(fields) if !graph.entry => given_input(graph, &fields, context, &mut given)?,
        NodeInput::Fields(fields) => input_of(graph, fields.to_value().map_err(RunError::from)?)?,
        NodeInput::Value(value) => input_of(graph, value)?,
        NodeInput::State(_) => unreachable!("a graph as a node is given channels or a value"),
    };
    let begun = begin(graph, context, Input::Update(input), &RunSettings::default(), EventMask::default())?;
    Ok((begun, given))
}

fn end_as_node(graph: &Graph, context: &Context, machine: Machine, given: &GivenLists) -> NodeResult<NodeOutput> {
    let shared = machine.shared();
    let (state, present) = finish(graph, context, machine)?;
    Ok(returned_output(graph, &state, &present, given, &shared)?)
}
