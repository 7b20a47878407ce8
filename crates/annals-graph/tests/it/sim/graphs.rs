//! Random graphs whose result depends on nothing but themselves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use annals::base::Map;
use annals::state::DynSchema;
use annals::state::DynState;
use annals_graph::graph::{CachePolicy, Own, Persistence, RetryPolicy, TimeoutPolicy};
use annals_graph::prelude::*;

use super::calls::{Calls, Made};
use super::{Rng, World};

/// The graph of a seed.
#[derive(Debug)]
pub(crate) struct Layers {
    layers: Vec<Vec<Node>>,
    /// How often the last layer leads back to the first.
    laps: i64,
}

#[derive(Clone, Debug)]
struct Node {
    name: String,
    weight: i64,
    asks: usize,
    /// Number of seconds that the node sleeps before it interrupts.
    sleeps: u64,
    fails: u32,
    hangs: u32,
    /// True if the results are cached. A crash leaves the cache as it is.
    cached: bool,
    kind: Kind,
    /// The edges to the next nodes.
    out: Out,
}

#[derive(Clone, Debug)]
enum Kind {
    Plain,
    /// Sends so many tasks to the worker.
    Sends(i64),
    Graph(Inner),
    Calls(Calls),
}

/// A graph of two nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inner {
    pub(crate) asks: bool,
    pub(crate) sleeps: bool,
    pub(crate) per_thread: bool,
    /// True if the nodes do not wait for turns.
    pub(crate) alone: bool,
}

#[derive(Clone, Debug)]
enum Out {
    Edges(Vec<usize>),
    /// To one of two, by the state.
    Branch(usize, usize),
}

impl Layers {
    /// Makes up the graph of a seed. If it is `narrow`, one task runs after another; if it is `sync`, supersteps are
    /// waited for.
    pub(crate) fn of(seed: u64, narrow: bool, sync: bool) -> Self {
        let (mut rng, mut kept, mut called) = (Rng(seed), Rng(!seed), Rng(seed ^ 0xca11));
        let sizes: Vec<usize> = (0..2 + rng.below(3)).map(|_| 1 + rng.below(3)).collect();
        let mut layers = Vec::new();
        for (at, size) in sizes.iter().enumerate() {
            let next = sizes.get(at + 1).copied().unwrap_or(0);
            let nodes = (0..*size).map(|i| {
                let name = format!("{}{i}", ["a", "b", "c", "d"][at]);
                let mut node = Node {
                    weight: 1 + rng.below(9) as i64,
                    asks: if rng.chance(15) { 1 + rng.below(2) } else { 0 },
                    sleeps: if rng.chance(12) { 1 + rng.below(100) as u64 } else { 0 },
                    fails: if rng.chance(20) { 1 + rng.below(2) as u32 } else { 0 },
                    hangs: u32::from(kept.chance(33)),
                    cached: kept.chance(30),
                    kind: match rng.below(10) {
                        0 | 1 => Kind::Sends(1 + rng.below(3) as i64),
                        2 => Kind::Graph(Inner {
                            asks: rng.chance(50),
                            sleeps: rng.chance(30),
                            per_thread: rng.chance(30),
                            alone: false,
                        }),
                        3 | 4 => Kind::Calls(Calls::of(&mut called, &name, narrow || !sync, narrow)),
                        _ => Kind::Plain,
                    },
                    out: match next {
                        0 => Out::Edges(Vec::new()),
                        _ if rng.chance(25) => Out::Branch(rng.below(next), rng.below(next)),
                        _ => Out::Edges((0..1 + rng.below(2)).map(|_| rng.below(next)).collect()),
                    },
                    name,
                };
                // The persisted state of a subgraph is not part of a node's result, so such a node is not cached.
                node.cached &= !node.keeps();
                node
            });
            layers.push(nodes.collect());
        }
        Self { layers, laps: rng.below(2) as i64 }
    }

    /// Returns the calls of its nodes.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &Calls> {
        self.layers.iter().flatten().filter_map(|node| match &node.kind {
            Kind::Calls(calls) => Some(calls),
            _ => None,
        })
    }

    /// Makes the graph. Its nodes wait for their turns.
    pub(crate) fn build(&self, world: &World) -> CompiledGraph<DynState> {
        let schema = DynSchema::new().append("log").reduce("sum", add).reduce("laps", add).build();
        let mut graph = StateGraph::with_schema(schema).cache(&world.cache);
        let turns = world.turns.clone();
        graph = graph.node(
            "worker",
            Own(move |n: i64, _: Context| {
                let turns = turns.clone();
                async move {
                    turns.wait(&format!("worker {n}")).await;
                    Ok(DynUpdate::new().set("log", Value::List(vec![format!("worker {n}").into()])).set("sum", n))
                }
            }),
        );
        for (at, layer) in self.layers.iter().enumerate() {
            for node in layer {
                graph = add_node(graph, node, world);
                if at == 0 {
                    graph = graph.edge(START, node.name.as_str());
                }
                graph = connect(graph, node, self.layers.get(at + 1));
            }
        }
        if let (Some(first), Some(last)) = (self.layers.first(), self.layers.last()) {
            let (first, laps) = (first[0].name.clone(), self.laps);
            graph = graph.node("lap", |_: Arc<DynState>, _: Context| async { Ok(DynUpdate::new().set("laps", 1)) });
            graph = graph.join(last.iter().map(|node| node.name.clone()), "lap");
            graph = graph.branch("lap", move |state: &DynState| {
                (state.get("laps").as_int().unwrap_or(0) % (laps + 1) > 0).then(|| first.clone())
            });
        }
        graph.compile().unwrap()
    }
}

impl Node {
    /// Returns true if a subgraph persists its state.
    fn keeps(&self) -> bool {
        match &self.kind {
            Kind::Graph(inner) => inner.per_thread,
            Kind::Calls(calls) => calls.keep(),
            Kind::Plain | Kind::Sends(_) => false,
        }
    }
}

fn add(old: Value, new: Value) -> Result<Value, String> {
    Ok((old.as_int().unwrap_or(0) + new.as_int().unwrap_or(0)).into())
}

fn add_node(graph: StateGraph<DynState>, node: &Node, world: &World) -> StateGraph<DynState> {
    let mut options = if node.cached { NodeOptions::new().cache(CachePolicy::new()) } else { NodeOptions::new() };
    if world.hangs {
        options = options.timeout(limits());
    }
    // The calls of a retry are new calls, which find the state that a subgraph persisted in the first attempt.
    let keeps = matches!(&node.kind, Kind::Calls(calls) if calls.keep());
    if world.hangs && !keeps && node.weight % 2 == 0 {
        let pause = Duration::from_millis(if node.weight % 4 == 0 { 20_000 } else { 500 });
        options = options.retry(RetryPolicy::new().initial_interval(pause).max_attempts(2).jitter(false));
    }
    let made = match &node.kind {
        Kind::Graph(plan) => return graph.node_with(node.name.as_str(), inner(world, *plan), options),
        Kind::Calls(calls) => Some(calls.build(world)),
        _ => None,
    };
    let (node, world) = (Arc::new(node.clone()), world.clone());
    let name = node.name.clone();
    let run = move |state: Arc<DynState>, context: Context| {
        let (node, world, made) = (Arc::clone(&node), world.clone(), made.clone());
        async move { run_node(&node, &world, made.as_ref(), &state, &context).await }
    };
    graph.node_with(name, run, options)
}

async fn run_node(
    node: &Node,
    world: &World,
    made: Option<&Made>,
    state: &DynState,
    context: &Context,
) -> NodeResult<Command> {
    world.turns.wait(&node.name).await;
    context.heartbeat();
    world.attempt(context, node.hangs, node.fails).await?;
    let sum = state.get("sum").as_int().unwrap_or(0);
    let mut line = format!("{} {sum}", node.name);
    if node.sleeps > 0 {
        context.sleep_for(Duration::from_secs(node.sleeps))?;
    }
    for question in 0..node.asks {
        if let Some(made) = made.filter(|_| question == 1) {
            line = format!("{line} {:?}", made.run(sum + 1, context).await?);
        }
        let answer = context.interrupt(format!("{} {question}?", node.name))?;
        line = format!("{line} {}", answer.as_str().unwrap_or("?"));
    }
    if let Some(made) = made {
        line = format!("{line} {:?}", made.run(sum, context).await?);
    }
    let update = DynUpdate::new().set("log", Value::List(vec![line.into()])).set("sum", node.weight);
    let mut command = Command::update(update);
    if let Kind::Sends(count) = node.kind {
        for n in 0..count {
            command = command.and_goto(SendTo::new("worker", sum + n));
        }
    }
    Ok(command)
}

/// Returns the timeouts of nodes.
pub(crate) fn limits() -> TimeoutPolicy {
    TimeoutPolicy::new().run_timeout(Duration::from_secs(30)).idle_timeout(Duration::from_secs(10))
}

fn connect(graph: StateGraph<DynState>, node: &Node, next: Option<&Vec<Node>>) -> StateGraph<DynState> {
    let Some(next) = next else { return graph };
    match &node.out {
        Out::Edges(targets) => {
            targets.iter().fold(graph, |graph, to| graph.edge(node.name.as_str(), next[*to].name.as_str()))
        }
        Out::Branch(even, odd) => {
            let (even, odd) = (next[*even].name.clone(), next[*odd].name.clone());
            graph.branch(node.name.as_str(), move |state: &DynState| {
                if state.get("sum").as_int().unwrap_or(0) % 2 == 0 { even.clone() } else { odd.clone() }
            })
        }
    }
}

/// A graph of two nodes that shares the sum.
pub(crate) fn inner(world: &World, plan: Inner) -> CompiledGraph<DynState> {
    let (one, two) = (world.turns.clone(), world.turns.clone());
    let schema = DynSchema::new().reduce("sum", add).last("heard").build();
    StateGraph::with_schema(schema)
        .node("one", move |_: Arc<DynState>, _: Context| {
            let turns = one.clone();
            async move {
                if !plan.alone {
                    turns.wait("one").await;
                }
                Ok(DynUpdate::new().set("sum", 100))
            }
        })
        .node("two", move |state: Arc<DynState>, context: Context| {
            let turns = two.clone();
            async move {
                if !plan.alone {
                    turns.wait("two").await;
                }
                if plan.sleeps {
                    context.sleep_for(Duration::from_secs(50))?;
                }
                let heard = if plan.asks { context.interrupt("inside?")? } else { Value::Null };
                Ok(DynUpdate::new().set("heard", heard).set("sum", state.get("sum").as_int().unwrap_or(0) % 3))
            }
        })
        .edge(START, "one")
        .edge("one", "two")
        .persistence(if plan.per_thread { Persistence::PerThread } else { Persistence::PerInvocation })
        .compile()
        .unwrap()
}

/// Returns the answer to a question.
pub(crate) fn answer_to(question: &Value) -> Value {
    format!("yes to {}", question.as_str().unwrap_or("?")).into()
}

/// Returns a state as text.
pub(crate) fn shown(state: &DynState) -> BTreeMap<String, String> {
    let list: Vec<Value> = state.list("log").map(|log| log.iter().cloned().collect()).unwrap_or_default();
    let mut map = Map::new();
    map.insert("log".into(), Value::List(list));
    for channel in ["sum", "laps"] {
        map.insert(channel.into(), state.get(channel).clone());
    }
    map.into_iter().map(|(name, value)| (name, format!("{value:?}"))).collect()
}
