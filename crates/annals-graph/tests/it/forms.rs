//! The typed and the dynamic form of one graph give the same history.

use annals::state::DynState;
use annals::state::Part;
use annals_graph::prelude::*;
use annals_graph::{RunError, StateSnapshot};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn add(old: i64, new: i64) -> i64 {
    old.wrapping_add(new)
}

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Typed {
    #[channel(last)]
    last: Option<i64>,
    #[channel(reduce = add)]
    sum: i64,
    #[channel(append)]
    list: List<String>,
    #[channel(any)]
    any: Option<i64>,
    #[channel(ephemeral)]
    once: Option<i64>,
    #[channel(topic, accumulate)]
    topic: Vec<i64>,
    #[channel(untracked)]
    loose: Option<i64>,
}

fn schema() -> Schema<DynState> {
    let sum = |old: Value, new: Value| Ok(Value::from(add(old.as_int().unwrap_or(0), new.as_int().unwrap_or(0))));
    let schema = DynSchema::new().last("last").reduce_from("sum", 0, sum).append("list").any("any");
    schema.ephemeral("once", true).topic("topic", true).untracked("loose", true).build()
}

/// One write of a node.
#[derive(Clone, Copy, Debug)]
enum Write {
    Last,
    Sum,
    ResetSum,
    List,
    ResetList,
    Any,
    Once,
    Topic,
    Loose,
}

const WRITES: [Write; 9] = [
    Write::Last,
    Write::Sum,
    Write::ResetSum,
    Write::List,
    Write::ResetList,
    Write::Any,
    Write::Once,
    Write::Topic,
    Write::Loose,
];

/// Returns the update of a node: its writes depend on the values that it reads.
fn typed(name: &str, write: Write, seen: (i64, usize)) -> TypedUpdate {
    let (n, text) = (seen.0, format!("{name} {} {}", seen.0, seen.1));
    match write {
        Write::Last => Typed::update().last(n),
        Write::Sum => Typed::update().sum(n + 1),
        Write::ResetSum => Typed::update().overwrite_sum(n),
        Write::List => Typed::update().list([text]),
        Write::ResetList => Typed::update().overwrite_list([text]),
        Write::Any => Typed::update().any(n),
        Write::Once => Typed::update().once(n),
        Write::Topic => Typed::update().topic([n]),
        Write::Loose => Typed::update().loose(n),
    }
}

fn dynamic(name: &str, write: Write, seen: (i64, usize)) -> DynUpdate {
    let (n, text) = (seen.0, format!("{name} {} {}", seen.0, seen.1));
    let one = |value: Value| Value::List(vec![value]);
    match write {
        Write::Last => DynUpdate::new().set("last", n),
        Write::Sum => DynUpdate::new().set("sum", n + 1),
        Write::ResetSum => DynUpdate::new().overwrite("sum", n),
        Write::List => DynUpdate::new().set("list", one(text.into())),
        Write::ResetList => DynUpdate::new().overwrite("list", one(text.into())),
        Write::Any => DynUpdate::new().set("any", n),
        Write::Once => DynUpdate::new().set("once", n),
        Write::Topic => DynUpdate::new().set("topic", one(n.into())),
        Write::Loose => DynUpdate::new().set("loose", n),
    }
}

/// A random graph: per node its writes, where its edges lead, whether it waits, and whether it loops.
#[derive(Clone, Debug)]
struct Plan {
    nodes: Vec<NodePlan>,
    join: Option<(usize, usize, usize)>,
    stop: Option<usize>,
}

#[derive(Clone, Debug)]
struct NodePlan {
    writes: Vec<usize>,
    to: Vec<usize>,
    defer: bool,
    /// Goes back to the first node as long as the sum is below this.
    below: Option<i64>,
}

fn plans() -> impl Strategy<Value = Plan> {
    let node = (
        proptest::collection::vec(0..WRITES.len(), 0..3),
        proptest::collection::vec(0..5_usize, 0..3),
        proptest::bool::weighted(0.2),
        proptest::option::weighted(0.2, 1..6_i64),
    );
    let node = node.prop_map(|(writes, to, defer, below)| NodePlan { writes, to, defer, below });
    let join = proptest::option::of((0..5_usize, 0..5_usize, 0..5_usize));
    let stop = proptest::option::weighted(0.3, 0..5_usize);
    (proptest::collection::vec(node, 1..5), join, stop).prop_map(|(nodes, join, stop)| Plan { nodes, join, stop })
}

/// Builds a graph; edges lead forward, so that only `below` makes loops.
fn build<S: Clone + Send + Sync + 'static, U: annals_graph::graph::IntoOutput<S> + 'static>(
    plan: &Plan,
    schema: Schema<S>,
    see: fn(&S) -> (i64, usize),
    write: fn(&str, Write, (i64, usize)) -> U,
) -> CompiledGraph<S> {
    let name = |at: usize| format!("n{at}");
    let count = plan.nodes.len();
    let mut graph = StateGraph::with_schema(schema).edge(START, "n0");
    for (at, node) in plan.nodes.iter().enumerate() {
        let (writes, own) = (node.writes.clone(), name(at));
        let run =
            move |state: &S| Ok(writes.iter().map(|which| write(&own, WRITES[*which], see(state))).collect::<Vec<U>>());
        graph = graph.node_with(name(at), run, NodeOptions::new().defer(node.defer));
        for to in node.to.iter().map(|to| at + 1 + to).filter(|to| *to < count) {
            graph = graph.edge(name(at), name(to));
        }
        if let Some(below) = node.below {
            graph = graph.branch(name(at), move |state: &S| if see(state).0 < below { "n0" } else { END });
        }
    }
    if let Some((a, b, to)) = plan.join.filter(|(a, b, to)| a < b && b < to && *to < count) {
        graph = graph.join([name(a), name(b)], name(to));
    }
    if let Some(stop) = plan.stop.filter(|stop| *stop < count) {
        graph = graph.interrupt_after([name(stop)]);
    }
    graph.compile().unwrap()
}

fn text(error: &annals_graph::Error) -> String {
    match error.as_run() {
        Some(RunError::State(error)) => error.to_string(),
        _ => error.to_string(),
    }
}

/// Returns the trace of a run and of the history after it, with the states as values.
fn trace<S: Clone + Send + Sync + 'static, M>(
    graph: &CompiledGraph<S>,
    store: &Store,
    input: impl annals_graph::IntoInput<S, M>,
    show: impl Fn(&S) -> Value,
) -> Vec<String> {
    let thread = store.thread("t").unwrap();
    let mut lines = Vec::new();
    let mut note = |outcome: annals_graph::Result<Outcome<S>>| match outcome {
        Ok(outcome) => lines.push(format!("{:?} {:?}", outcome.is_done(), show(outcome.state()))),
        Err(error) => lines.push(text(&error)),
    };
    note(graph.run(&thread).recursion_limit(12).invoke(input));
    note(graph.run(&thread).recursion_limit(12).invoke(Input::Continue));
    for state in graph.get_state_history(&thread).unwrap() {
        let state: StateSnapshot<S> = state.unwrap();
        let tasks: Vec<_> = state.tasks.iter().map(|task| (&task.name, &task.result, &task.error)).collect();
        lines.push(format!("{:?} {:?} {:?} {tasks:?} {:?}", state.step, state.source, state.next, show(&state.values)));
    }
    lines
}

fn show_typed(state: &Typed) -> Value {
    let one = |value: Option<i64>| value.map_or(Value::Null, Value::from);
    Value::List(vec![
        one(state.last),
        state.sum.into(),
        Value::List(state.list.iter().map(|text| Value::from(text.as_str())).collect()),
        one(state.any),
        one(state.once),
        Value::List(state.topic.iter().map(|n| Value::from(*n)).collect()),
        one(state.loose),
    ])
}

fn show_dynamic(state: &DynState) -> Value {
    Value::List(vec![
        state.get("last").clone(),
        state.get("sum").clone(),
        Value::List(state.list("list").unwrap().to_vec()),
        state.get("any").clone(),
        state.get("once").clone(),
        Value::List(state.topic("topic").unwrap().to_vec()),
        state.get("loose").clone(),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn the_typed_and_the_dynamic_form_of_a_graph_give_the_same_history(plan in plans()) {
        let see_typed = |s: &Typed| (s.sum, s.list.len());
        let see_dynamic = |s: &DynState| (s.get("sum").as_int().unwrap_or(0), s.list("list").map_or(0, List::len));
        let one = build(&plan, Schema::<Typed>::of(), see_typed, typed);
        let other = build(&plan, schema(), see_dynamic, dynamic);
        let one = trace(&one, &Store::memory(), Typed::update().sum(1).once(5), show_typed);
        let other = trace(&other, &Store::memory(), DynUpdate::new().set("sum", 1).set("once", 5), show_dynamic);
        prop_assert_eq!(one, other);
    }
}

/// A state of any type that can be stored.
#[derive(State, Clone, Default)]
struct Search<T, const MOST: usize>
where
    T: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    best: Option<T>,
    #[channel(append)]
    tried: List<T>,
}

#[derive(State, Clone, Default)]
#[state(part_of = Search<T, 2>)]
struct Best<T: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static> {
    best: Option<T>,
}

fn searched<T>(next: fn(&[T]) -> T) -> (Option<T>, Vec<T>)
where
    T: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    let graph = StateGraph::<Search<T, 2>>::new()
        .node("try", move |search: &Search<T, 2>| Ok(Search::<T, 2>::update().tried([next(&search.tried.to_vec())])))
        .node("keep", |search: &Search<T, 2>| Ok(Best { best: search.tried.to_vec().last().cloned() }))
        .edge(START, "try")
        .branch("try", |search: &Search<T, 2>| if search.tried.len() < 2 { "try" } else { "keep" })
        .compile()
        .unwrap();
    let thread = Store::memory().thread("t").unwrap();
    graph.invoke(&thread, Search::<T, 2>::update().tried([next(&[])])).unwrap();
    thread.store().clear_head_cache();
    let state = graph.get_state(&thread).unwrap().values;
    (Best::of(&*state).best, state.tried.to_vec())
}

#[test]
fn a_state_may_have_parameters() {
    assert_eq!(searched(|tried: &[i64]| tried.len() as i64), (Some(1), vec![0, 1]));
    assert_eq!(searched(|tried: &[String]| "x".repeat(tried.len())).0.as_deref(), Some("x"));
}
