//! Builds the graph of a workflow.

use std::sync::Arc;

use annals_graph::annals::base::Value;
use annals_graph::annals::state::{DynSchema, DynState, DynUpdate};
use annals_graph::graph::{CompiledGraph, END, GraphError, NodeOptions, NodeResult, START, StateGraph};
use annals_graph::task::Context;

use crate::expression::is_true;
use crate::nodes;
use crate::secrets::{RedactPattern, SecretSource};
use crate::spec::{FlowEdge, FlowNode, FlowRetry, FlowSpec, FlowWork, Outputs, Reducer};

/// `source` has the values of the secrets when a node runs; `around` are the patterns of the workflows around this one.
pub(crate) fn graph(
    spec: FlowSpec,
    source: &Arc<SecretSource>,
    around: &[RedactPattern],
) -> Result<CompiledGraph<DynState>, GraphError> {
    let FlowSpec { name, channels, start, nodes, folder, secrets, redact, .. } = spec;
    let patterns: Arc<[RedactPattern]> = around.iter().cloned().chain(redact).collect();
    let known = Arc::clone(&patterns);
    let secrets = move |source: &SecretSource| source.read(&secrets).map(|secrets| secrets.with_patterns(&known));
    let mut graph = StateGraph::with_schema(schema(channels).build()).name(name);
    for first in start {
        graph = graph.edge(START, first);
    }
    for FlowNode { name, work, after, next, retry } in nodes {
        let options = options(&work, retry);
        let node: Arc<str> = name.into();
        graph = match work {
            FlowWork::Run(spec) => {
                let (folder, source, secrets) = (folder.clone(), Arc::clone(source), secrets.clone());
                let run = move |state: &DynState, context: &Context| {
                    nodes::run(&spec, &folder, secrets(&source)?, retry, state, context)
                };
                graph.node_with(Arc::clone(&node), run, options)
            }
            FlowWork::Set(writes) => {
                graph.node_with(Arc::clone(&node), move |state: &DynState| nodes::set(&writes, state), options)
            }
            FlowWork::Wait(time) => {
                let wait = move |_: &DynState, context: &Context| -> NodeResult<DynUpdate> {
                    context.sleep_for(time)?;
                    Ok(DynUpdate::new())
                };
                graph.node_with(Arc::clone(&node), wait, options)
            }
            FlowWork::Ask { text, into, schema } => {
                let ask = move |state: &DynState, context: &Context| -> NodeResult<DynUpdate> {
                    let text = text.value(state)?;
                    let resumed = match &schema {
                        Some(schema) => context.interrupt_with(text, schema.clone())?,
                        None => context.interrupt(text)?,
                    };
                    Ok(DynUpdate::new().set(into.as_str(), resumed))
                };
                graph.node_with(Arc::clone(&node), ask, options)
            }
            FlowWork::Http(spec) => {
                let (source, secrets) = (Arc::clone(source), secrets.clone());
                let send =
                    move |state: &DynState, context: &Context| nodes::http(&spec, &secrets(&source)?, state, context);
                graph.node_with(Arc::clone(&node), send, options)
            }
            FlowWork::Call(spec, call) => {
                let inner = InnerFlow::of(*spec, source, &patterns)?;
                let run = move |state: &DynState, context: &Context| nodes::call(&inner, &call, state, context);
                graph.node_with(Arc::clone(&node), run, options)
            }
            FlowWork::Each(spec, each) => {
                let inner = Arc::new(InnerFlow::of(*spec, source, &patterns)?);
                let run =
                    move |state: &DynState, context: &Context| nodes::run_each(&inner, &each, retry, state, context);
                graph.node_with(Arc::clone(&node), run, options)
            }
            FlowWork::Workflow(spec) => {
                graph.node_with(Arc::clone(&node), self::graph(*spec, source, &patterns)?, options)
            }
        };
        graph = with_edges(graph, node, &after, next);
    }
    graph.compile()
}

/// Returns the options of a node. The items of a list are retried one by one, and not with it.
fn options(work: &FlowWork, retry: Option<FlowRetry>) -> NodeOptions<DynState> {
    let is_each = matches!(work, FlowWork::Run(spec) if spec.items.is_some()) || matches!(work, FlowWork::Each(..));
    let options = NodeOptions::new();
    match retry.filter(|_| !is_each) {
        Some(retry) => options.retry(nodes::policy(retry)),
        None => options,
    }
}

/// A workflow that a node calls.
#[derive(Debug)]
pub(crate) struct InnerFlow {
    pub(crate) graph: CompiledGraph<DynState>,
    pub(crate) outputs: Outputs,
}

impl InnerFlow {
    fn of(mut spec: FlowSpec, source: &Arc<SecretSource>, around: &[RedactPattern]) -> Result<Self, GraphError> {
        let outputs = std::mem::take(&mut spec.outputs);
        Ok(Self { graph: graph(spec, source, around)?, outputs })
    }
}

/// Returns the schema of the channels.
fn schema(channels: Vec<(String, Reducer)>) -> DynSchema {
    let mut schema = DynSchema::new();
    for (channel, reducer) in channels {
        schema = match reducer {
            Reducer::Last => schema.last(channel),
            Reducer::Append => schema.append(channel),
            Reducer::Sum => schema.reduce_from(channel, 0, |old, new| fold("sum", old, new)),
            Reducer::Min => schema.reduce(channel, |old, new| fold("min", old, new)),
            Reducer::Max => schema.reduce(channel, |old, new| fold("max", old, new)),
            Reducer::Map => schema.map(channel),
            Reducer::Text => schema.text(channel),
            Reducer::Messages => schema.messages(channel),
        };
    }
    schema
}

fn with_edges(
    mut graph: StateGraph<DynState>,
    node: Arc<str>,
    after: &[String],
    next: Vec<FlowEdge>,
) -> StateGraph<DynState> {
    match after {
        [] => {}
        [one] => graph = graph.edge(one.as_str(), Arc::clone(&node)),
        several => graph = graph.join(several.iter().map(String::as_str), Arc::clone(&node)),
    }
    if next.iter().all(|edge| edge.condition.is_none()) {
        for edge in next {
            let target = edge.to.map_or_else(|| Arc::from(END), Arc::from);
            graph = graph.edge(Arc::clone(&node), target);
        }
        return graph;
    }
    let mut targets: Vec<String> = next.iter().map(|edge| edge.to.clone().unwrap_or_else(|| END.into())).collect();
    targets.push(END.into());
    targets.sort();
    targets.dedup();
    let is_target = |to: &String| targets.binary_search(to).is_ok();
    debug_assert!(next.iter().filter_map(|edge| edge.to.as_ref()).all(is_target), "a path returns a target");
    let path = move |state: &DynState| -> NodeResult<String> {
        for edge in &next {
            let value = match &edge.condition {
                Some(condition) => condition.evaluate(&|channel| state.value(channel).into_owned())?,
                None => Value::Bool(true),
            };
            if is_true(&value) {
                return Ok(edge.to.clone().unwrap_or_else(|| END.into()));
            }
        }
        Ok(END.into())
    };
    graph.branch_to(node, path, targets.iter().map(String::as_str))
}

fn fold(reducer: &str, old: Value, new: Value) -> Result<Value, String> {
    let number = |value: &Value| match value {
        Value::Int(value) => Ok(*value as f64),
        Value::Float(value) => Ok(*value),
        other => Err(format!("the reducer {reducer} folds numbers, found {}", other.kind())),
    };
    let (a, b) = (number(&old)?, number(&new)?);
    Ok(match (reducer, &old, &new) {
        ("sum", Value::Int(a), Value::Int(b)) => Value::Int(a.checked_add(*b).ok_or("the sum exceeds 64 bits")?),
        ("sum", ..) => Value::Float(a + b),
        ("min", ..) => {
            if b < a {
                new
            } else {
                old
            }
        }
        _ => {
            if b > a {
                new
            } else {
                old
            }
        }
    })
}
