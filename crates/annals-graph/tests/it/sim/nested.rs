//! Random graphs with subgraphs that interrupt: as nodes and called by nodes, with and without persisted state, two
//! deep.
//!
//! A subgraph lists what happened to it (`seen`, `seen deep`) and tells its parent graph all of it, so that a lost
//! edit, input or resume value shows in the state of the parent graph.

use std::sync::Arc;

use annals::state::{DynSchema, DynState};
use annals_graph::graph::Persistence;
use annals_graph::prelude::*;

use super::graphs::answer_to;
use super::{Rng, World};

/// The graph of a seed.
#[derive(Debug)]
pub(crate) struct Nested {
    layers: Vec<Vec<Node>>,
    /// True if all layers run once more after each input.
    repeats: bool,
}

#[derive(Clone, Debug)]
struct Node {
    name: String,
    fails: u32,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Plain {
        asks: bool,
    },
    /// A subgraph as a node.
    Graph(Part),
    /// A subgraph that the node calls.
    Calls(Part),
}

/// A subgraph.
#[derive(Clone, Debug)]
struct Part {
    asks: bool,
    per_thread: bool,
    fails: u32,
    deep: Option<Box<Part>>,
}

/// A compiled subgraph.
#[derive(Clone)]
pub(crate) struct Inside {
    /// The node of its parent graph.
    pub(crate) node: String,
    /// The channel that lists what happened to it.
    pub(crate) list: &'static str,
    pub(crate) graph: CompiledGraph<DynState>,
    pub(crate) deep: Option<Arc<Inside>>,
}

impl Nested {
    /// Makes up the graph of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng(seed ^ 0x7e57ed);
        let layers: Vec<Vec<Node>> = (0..1 + rng.below(3))
            .map(|at| {
                let mut has_graph = false;
                let nodes = (0..1 + rng.below(2)).map(|i| {
                    let kind = match rng.below(5) {
                        0 => Kind::Plain { asks: rng.chance(40) },
                        // Two subgraphs as nodes would both write the topic.
                        1 | 2 if !has_graph => {
                            has_graph = true;
                            Kind::Graph(Part::of(&mut rng, true))
                        }
                        _ => Kind::Calls(Part::of(&mut rng, true)),
                    };
                    let fails = if rng.chance(20) { 1 } else { 0 };
                    Node { name: format!("{}{i}", ["a", "b", "c"][at]), fails, kind }
                });
                nodes.collect()
            })
            .collect();
        let repeats = layers[0].len() == 1 && rng.chance(25);
        Self { layers, repeats }
    }

    /// Returns the names of its nodes.
    pub(crate) fn names(&self) -> Vec<String> {
        self.layers.iter().flatten().map(|node| node.name.clone()).collect()
    }

    /// Makes the graph and its subgraphs. Their nodes wait for their turns.
    pub(crate) fn build(&self, world: &World) -> (CompiledGraph<DynState>, Vec<Inside>) {
        let mut graph = StateGraph::with_schema(DynSchema::new().last("topic").append("lines").build());
        let mut parts = Vec::new();
        for (at, layer) in self.layers.iter().enumerate() {
            for node in layer {
                let name = node.name.as_str();
                let inside = match &node.kind {
                    Kind::Graph(part) | Kind::Calls(part) => Some(part.build(name, "seen", world)),
                    Kind::Plain { .. } => None,
                };
                graph = match (&node.kind, &inside) {
                    (Kind::Graph(_), Some(inside)) => graph.node(name, inside.graph.clone()),
                    _ => add(graph, node, inside.clone(), world),
                };
                parts.extend(inside);
                if at == 0 {
                    graph = graph.edge(START, name);
                }
                for next in self.layers.get(at + 1).into_iter().flatten() {
                    graph = graph.edge(name, next.name.as_str());
                }
            }
        }
        if self.repeats {
            graph = self.repeat(graph);
        }
        (graph.compile().unwrap(), parts)
    }

    /// Adds a node after the last layer that runs all layers once more after each input.
    fn repeat(&self, graph: StateGraph<DynState>) -> StateGraph<DynState> {
        let again = |_: Arc<DynState>, _: Context| async {
            Ok(DynUpdate::new().set("lines", Value::List(vec!["again".into()])))
        };
        let first = self.layers[0][0].name.clone();
        let path = move |state: &DynState| {
            let lines = list(state, "lines");
            let number = |of: &dyn Fn(&String) -> bool| lines.iter().filter(|line| of(line)).count();
            let repeats = number(&|line| *line == "again") <= number(&|line| line.starts_with("in "));
            if repeats { first.clone() } else { END.to_owned() }
        };
        let last = self.layers.iter().next_back().into_iter().flatten();
        last.fold(graph.node("again", again), |graph, node| graph.edge(node.name.as_str(), "again"))
            .branch("again", path)
    }
}

/// Adds a node that is a function.
fn add(graph: StateGraph<DynState>, node: &Node, inside: Option<Inside>, world: &World) -> StateGraph<DynState> {
    let (node, world) = (Arc::new(node.clone()), world.clone());
    let name = node.name.clone();
    let run = move |state: Arc<DynState>, context: Context| {
        let (node, world, inside) = (Arc::clone(&node), world.clone(), inside.clone());
        async move {
            let name = &node.name;
            world.turns.wait(name).await;
            world.attempt_of(name.clone(), 0, node.fails).await?;
            let topic = text(state.get("topic"));
            let mut line = format!("{name} {} {topic}", list(&state, "lines").len());
            if let Kind::Plain { asks: true } = node.kind {
                let answer = context.interrupt(format!("{name} {}?", list(&state, "lines").len()))?;
                line = format!("{line} {}", text(&answer));
            }
            if let Some(inside) = inside {
                let done = inside.graph.ainvoke(&context, DynUpdate::new().set("topic", line.clone())).await?;
                line = format!("{line} [{}]", text(done.state().get("topic")));
            }
            Ok(DynUpdate::new().set("lines", Value::List(vec![line.into()])))
        }
    };
    graph.node(name, run)
}

impl Part {
    fn of(rng: &mut Rng, deep: bool) -> Self {
        Self {
            asks: rng.chance(80),
            per_thread: rng.chance(50),
            fails: u32::from(rng.chance(15)),
            deep: (deep && rng.chance(35)).then(|| Box::new(Self::of(rng, false))),
        }
    }

    fn build(&self, node: &str, list_of: &'static str, world: &World) -> Inside {
        let deep = self.deep.as_ref().map(|deep| Arc::new(deep.build("deep", "seen deep", world)));
        let schema = DynSchema::new().last("topic").append(list_of).build();
        let (turns, outer, fails) = (world.turns.clone(), world.clone(), self.fails);
        let owner = node.to_owned();
        let note = move |state: Arc<DynState>, _: Context| {
            let (world, owner) = (outer.clone(), owner.clone());
            async move {
                world.turns.wait(&format!("{owner} note")).await;
                world.attempt_of(format!("{owner} note"), 0, fails).await?;
                let digest = text(state.get("topic")).bytes().fold(7, |sum, byte| (sum * 31 + u32::from(byte)) % 997);
                let line = format!("visit {} {digest}", list(&state, list_of).len());
                Ok(DynUpdate::new().set(list_of, Value::List(vec![line.into()])))
            }
        };
        let (asks, owner) = (self.asks, node.to_owned());
        let ask = move |state: Arc<DynState>, context: Context| {
            let (turns, owner) = (turns.clone(), owner.clone());
            async move {
                turns.wait(&format!("{owner} ask")).await;
                if !asks {
                    return Ok(DynUpdate::new());
                }
                let answer = context.interrupt(format!("{owner} {list_of} {}?", list(&state, list_of).len()))?;
                Ok(DynUpdate::new().set(list_of, Value::List(vec![answer])))
            }
        };
        let owner = node.to_owned();
        let tell = move |state: Arc<DynState>, _: Context| {
            let told = format!("{owner}: {}", list(&state, list_of).join(", "));
            async move { Ok(DynUpdate::new().set("topic", told)) }
        };
        let graph = StateGraph::with_schema(schema).node("note", note).node("ask", ask).node("tell", tell);
        let graph = match &deep {
            Some(deep) => graph.node("deep", deep.graph.clone()).edge("note", "deep").edge("deep", "ask"),
            None => graph.edge("note", "ask"),
        };
        let graph = graph.edge(START, "note").edge("ask", "tell").persistence(match self.per_thread {
            true => Persistence::PerThread,
            false => Persistence::PerInvocation,
        });
        Inside { node: node.to_owned(), list: list_of, graph: graph.compile().unwrap(), deep }
    }
}

/// Returns a text channel.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the texts of a list channel.
pub(crate) fn list(state: &DynState, channel: &str) -> Vec<String> {
    state.list(channel).map(|list| list.iter().map(text).collect()).unwrap_or_default()
}

/// Returns the answer to an interrupt as a resume value.
pub(crate) fn resume_value(question: &Value) -> Value {
    answer_to(question)
}
