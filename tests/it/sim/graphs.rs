//! Random graphs whose result depends on nothing but themselves.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals::base::Map;
use annals::prelude::*;
use annals::state::DynSchema;
use annals::store::Cache;

use super::Rng;
use super::turns::Turns;

/// The graph of a seed.
pub(crate) struct Plan {
    /// Whether each superstep is waited for.
    pub(crate) sync: bool,
    /// Whether each run has an idempotency key, and is repeated until it does not fail.
    pub(crate) keyed: bool,
    layers: Vec<Vec<Node>>,
    /// How often the last layer leads back to the first.
    laps: i64,
    seed: u64,
}

#[derive(Clone)]
struct Node {
    name: String,
    weight: i64,
    asks: usize,
    /// How many seconds it sleeps before it asks.
    sleeps: u64,
    fails: u32,
    /// Whether its results are kept in the cache, which a crash leaves as it is.
    cached: bool,
    kind: Kind,
    /// Where it leads.
    out: Out,
}

#[derive(Clone)]
enum Kind {
    Plain,
    /// Sends so many tasks to the worker.
    Sends(i64),
    /// A graph of two nodes.
    Graph {
        asks: bool,
        sleeps: bool,
        per_thread: bool,
    },
}

#[derive(Clone)]
enum Out {
    Edges(Vec<usize>),
    /// To one of two, by the state.
    Branch(usize, usize),
}

impl Plan {
    /// Makes the plan of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let (mut rng, mut kept) = (Rng(seed), Rng(!seed));
        let sizes: Vec<usize> = (0..2 + rng.below(3)).map(|_| 1 + rng.below(3)).collect();
        let mut layers = Vec::new();
        for (at, size) in sizes.iter().enumerate() {
            let next = sizes.get(at + 1).copied().unwrap_or(0);
            let nodes = (0..*size).map(|i| Node {
                name: format!("{}{i}", ["a", "b", "c", "d"][at]),
                weight: 1 + rng.below(9) as i64,
                asks: if rng.chance(15) { 1 + rng.below(2) } else { 0 },
                sleeps: if rng.chance(12) { 1 + rng.below(100) as u64 } else { 0 },
                fails: if rng.chance(20) { 1 + rng.below(2) as u32 } else { 0 },
                cached: kept.chance(30),
                kind: match rng.below(10) {
                    0 | 1 => Kind::Sends(1 + rng.below(3) as i64),
                    2 => Kind::Graph { asks: rng.chance(50), sleeps: rng.chance(30), per_thread: rng.chance(30) },
                    _ => Kind::Plain,
                },
                out: match next {
                    0 => Out::Edges(Vec::new()),
                    _ if rng.chance(25) => Out::Branch(rng.below(next), rng.below(next)),
                    _ => Out::Edges((0..1 + rng.below(2)).map(|_| rng.below(next)).collect()),
                },
            });
            layers.push(nodes.collect());
        }
        Self { sync: rng.chance(50), keyed: rng.chance(30), layers, laps: rng.below(2) as i64, seed }
    }

    /// Returns the input of its first run.
    pub(crate) fn input(&self) -> DynUpdate {
        DynUpdate::new().set("sum", (self.seed % 7) as i64)
    }

    /// Makes the graph. Its nodes wait for their turns.
    pub(crate) fn build(&self, turns: &Turns, cache: &Cache, failures: bool) -> CompiledGraph<DynState> {
        let tried: Tried = Arc::default();
        let schema = DynSchema::new().append("log").reduce("sum", add).reduce("laps", add).build();
        let mut graph = StateGraph::with_schema(schema).cache(cache);
        let worker_turns = turns.clone();
        graph = graph.node(
            "worker",
            Own(move |n: i64, _: Context| {
                let turns = worker_turns.clone();
                async move {
                    turns.wait(&format!("worker {n}")).await;
                    Ok(DynUpdate::new().set("log", Value::List(vec![format!("worker {n}").into()])).set("sum", n))
                }
            }),
        );
        for (at, layer) in self.layers.iter().enumerate() {
            for node in layer {
                graph = match node.kind {
                    Kind::Graph { .. } => graph.node(node.name.as_str(), inner(turns, &node.kind)),
                    _ => add_node(graph, node, turns, &tried, failures),
                };
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
                (state.get("laps").as_int().unwrap_or(0) <= laps).then(|| first.clone())
            });
        }
        graph.compile().unwrap()
    }
}

/// How often each task was tried, over all runs.
type Tried = Arc<Mutex<HashMap<String, u32>>>;

fn add(old: Value, new: Value) -> Result<Value, String> {
    Ok((old.as_int().unwrap_or(0) + new.as_int().unwrap_or(0)).into())
}

fn add_node(
    graph: StateGraph<DynState>,
    node: &Node,
    turns: &Turns,
    tried: &Tried,
    failures: bool,
) -> StateGraph<DynState> {
    let (plan, turns, tried) = (node.clone(), turns.clone(), Arc::clone(tried));
    let options = if node.cached { NodeOptions::new().cache(CachePolicy::new()) } else { NodeOptions::new() };
    let run = move |state: Arc<DynState>, context: Context| {
        let (plan, turns, tried) = (plan.clone(), turns.clone(), Arc::clone(&tried));
        async move {
            turns.wait(&plan.name).await;
            if failures {
                let mut tried = tried.lock().unwrap();
                let times = tried.entry(context.namespace()).or_default();
                *times += 1;
                if *times <= plan.fails {
                    return Err("it fails at first".into());
                }
            }
            let sum = state.get("sum").as_int().unwrap_or(0);
            let mut line = format!("{} {sum}", plan.name);
            if plan.sleeps > 0 {
                context.sleep_for(Duration::from_secs(plan.sleeps))?;
            }
            for question in 0..plan.asks {
                let answer = context.interrupt(format!("{} {question}?", plan.name))?;
                line = format!("{line} {}", answer.as_str().unwrap_or("?"));
            }
            let update = DynUpdate::new().set("log", Value::List(vec![line.into()])).set("sum", plan.weight);
            let mut command = Command::update(update);
            if let Kind::Sends(count) = plan.kind {
                for n in 0..count {
                    command = command.and_goto(SendTo::new("worker", sum + n));
                }
            }
            Ok(command)
        }
    };
    graph.node_with(node.name.as_str(), run, options)
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
fn inner(turns: &Turns, kind: &Kind) -> CompiledGraph<DynState> {
    let Kind::Graph { asks, sleeps, per_thread } = *kind else { panic!("no graph") };
    let (one, two) = (turns.clone(), turns.clone());
    let schema = DynSchema::new().reduce("sum", add).last("heard").build();
    StateGraph::with_schema(schema)
        .node("one", move |_: Arc<DynState>, _: Context| {
            let turns = one.clone();
            async move {
                turns.wait("one").await;
                Ok(DynUpdate::new().set("sum", 100))
            }
        })
        .node("two", move |state: Arc<DynState>, context: Context| {
            let turns = two.clone();
            async move {
                turns.wait("two").await;
                if sleeps {
                    context.sleep_for(Duration::from_secs(50))?;
                }
                let heard = if asks { context.interrupt("inside?")? } else { Value::Null };
                Ok(DynUpdate::new().set("heard", heard).set("sum", state.get("sum").as_int().unwrap_or(0) % 3))
            }
        })
        .edge(START, "one")
        .edge("one", "two")
        .persistence(if per_thread { Persistence::PerThread } else { Persistence::PerInvocation })
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
