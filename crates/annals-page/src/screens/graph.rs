//! The graph as the log shows it: the nodes that ran on the lineage of a point, with durations and tokens, and the
//! transitions between them. The nodes and edges that no step took are from the drawing that the executor leaves in the
//! cache of the store, if it is there. *Absent:* the drawings of subgraphs, which are not stored.

use std::collections::{BTreeMap, BTreeSet};

use annals::base::{RunId, Value};
use annals::history::Snapshot;
use annals::store::{CacheKey, Source};
use annals_runs::SnapshotRuns as _;
use annals_view::words::{START, count, grouped, metadata, rounded, shortened, span};
use serde_json::{Value as Json, json};

use super::heading::{heading, name, tabs};
use super::step::lanes;
use super::tree::BranchTree;
use super::{Screen, Shown};
use crate::address;
use crate::failure::Refusal;
use crate::flowchart::{self, ChartEdge, ChartNode};
use crate::html::Html;
use crate::layout::View;
use crate::limits::{CHANGED_ITEMS_MAX, CHART_NODES_MAX, GRAPH_STEPS_MAX};
use crate::plot::{Bar, bars};

/// The end of a graph, as a transition shows it.
const END: &str = "(end)";
/// The end of a graph, as a drawing names it.
const DRAWN_END: &str = "__end__";
/// The label of the drawings in the cache, and the key of the drawing of a graph without a version.
const DRAWINGS: &str = "drawings";
const NEWEST: &str = "newest";
/// Steps of the path that is shown in one line.
const PATH: usize = 40;

/// The figures of a node.
#[derive(Default)]
struct NodeFigures {
    tasks: u64,
    /// The durations of its tasks, or of the supersteps in which it ran, in microseconds.
    micros: Vec<i64>,
    tokens: u64,
}

/// The nodes and edges of a compiled graph.
#[derive(Default)]
struct StoredDrawing {
    nodes: Vec<String>,
    edges: BTreeSet<(String, String)>,
}

/// The nodes and transitions of a lineage.
#[derive(Default)]
struct SeenGraph {
    nodes: BTreeMap<String, NodeFigures>,
    transitions: BTreeMap<(String, String), u64>,
    /// The transitions of the run of the point.
    own: BTreeSet<(String, String)>,
    /// That run.
    run: Option<RunId>,
    /// The steps, newest first, each with its nodes.
    path: Vec<(Snapshot, Vec<String>)>,
    steps: usize,
    /// The graph of the run, if its drawing is stored.
    drawing: Option<StoredDrawing>,
}

pub(super) fn show(screen: &Screen<'_>, at: &Snapshot) -> Result<Shown, Refusal> {
    let seen = SeenGraph::read(at)?;
    if screen.json {
        return Ok(Shown::Json(seen.document()));
    }
    let (thread, mut html) = (screen.thread(at)?, Html::new());
    let info = thread.info()?;
    heading(&mut html, &thread, &info, at, &BranchTree::read(&thread)?)?;
    tabs(&mut html, at, "graph");
    html.open("div", &[("class", "graph")]).open("figure", &[]);
    seen.chart(&mut html, at);
    html.close("figure").open("div", &[]);
    html.open("p", &[("class", "path")]);
    for (at, (snapshot, nodes)) in seen.path.iter().take(PATH).collect::<Vec<_>>().into_iter().rev().enumerate() {
        html.text(if at > 0 { " → " } else { "" });
        let names = annals_view::words::tally(nodes.iter().map(String::as_str));
        html.link(&format!("{}/step", address::point(snapshot)), &shortened(&names, 60));
    }
    html.close("p");
    seen.table(&mut html);
    html.open("details", &[]).element(
        "summary",
        &[("class", "mid")],
        &count(seen.transitions.len() as u64, "transition"),
    );
    let transitions = seen.transitions.iter();
    let name_of = |name: &str| shortened(&annals_view::words::tally([name]), 40);
    let transitions = transitions.map(|((from, to), n)| Bar {
        name: format!("{} → {}", name_of(from), name_of(to)),
        value: *n as f64,
        shown: grouped(*n),
        note: String::new(),
    });
    bars(&mut html, ("times that a step took them", ""), &transitions.collect::<Vec<_>>());
    html.close("details").close("div").close("div");
    Ok(View::new(format!("{} graph", name(&info)), html).live(thread.id().as_str()).into())
}

impl NodeFigures {
    fn median(&self) -> i64 {
        let mut sorted = self.micros.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or(0)
    }
}

impl SeenGraph {
    /// Reads the newest steps of a lineage.
    fn read(at: &Snapshot) -> Result<Self, Refusal> {
        let mut seen = Self { run: at.record().run, ..Self::default() };
        let mut child: Option<Snapshot> = None;
        // The version is in the metadata of the first checkpoint of a run, and of each 64th.
        let (mut version, mut has_begun) = (None, false);
        for snapshot in at.lineage().take(GRAPH_STEPS_MAX + 1) {
            let parent = snapshot?;
            if version.is_none() && !has_begun {
                version = member(&parent, "graph_code");
                has_begun = parent.source() == Source::Input;
            }
            if let Some(child) = child.filter(|child| child.source() == Source::Loop) {
                seen.add(&child, &parent)?;
            }
            child = Some(parent);
            seen.steps += 1;
        }
        debug_assert!(seen.path.len() <= seen.steps, "a step is one of the lineage");
        seen.drawing = StoredDrawing::read(at, version.as_deref());
        Ok(seen)
    }

    fn add(&mut self, child: &Snapshot, parent: &Snapshot) -> Result<(), Refusal> {
        let micros = child.created_at().as_micros().saturating_sub(parent.created_at().as_micros()).max(0);
        let ran: Vec<String> = parent.next().map(ToOwned::to_owned).collect();
        let tokens = annals_view::changes(child, None, CHANGED_ITEMS_MAX)?
            .iter()
            .map(|step| step.tokens.0 + step.tokens.1)
            .sum::<u64>();
        // Parallel tasks of a run that records their ends have times of their own.
        let steps = if ran.len() > 1 { parent.steps(Some(child))? } else { Vec::new() };
        let mut own: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for (step, spans) in lanes(&steps).into_iter().filter(|(step, spans)| !step.is_call && !spans.is_empty()) {
            let taken = spans.iter().map(|span| span.to.as_micros().saturating_sub(span.from.as_micros()).max(0));
            own.entry(&*step.name).or_default().push(taken.sum());
        }
        let mut names = ran.clone();
        names.sort_unstable();
        names.dedup();
        for (at, name) in names.iter().enumerate() {
            let node = self.nodes.entry(name.clone()).or_default();
            node.tasks += ran.iter().filter(|of| *of == name).count() as u64;
            match own.remove(name.as_str()) {
                Some(taken) => node.micros.extend(taken),
                None => node.micros.push(micros),
            }
            // The messages of parallel tasks are counted once.
            node.tokens += if at == 0 { tokens } else { 0 };
            let mut next: Vec<&str> = child.next().collect();
            next.sort_unstable();
            next.dedup();
            if next.is_empty() {
                next.push(END);
            }
            for to in next {
                if self.run.is_some() && child.record().run == self.run {
                    self.own.insert((name.clone(), to.to_owned()));
                }
                *self.transitions.entry((name.clone(), to.to_owned())).or_default() += 1;
            }
        }
        self.path.push((child.clone(), ran));
        Ok(())
    }

    /// Adds the picture of the nodes and transitions; the path of the run of the point is marked.
    fn chart(&self, html: &mut Html, at: &Snapshot) {
        let ends = self.transitions.keys().flat_map(|(from, to)| [from, to]);
        let drawn = self.drawing.iter().flat_map(|drawing| &drawing.nodes);
        let seen: BTreeSet<&String> = self.nodes.keys().chain(ends).collect();
        let unseen: BTreeSet<&String> = drawn.filter(|name| !seen.contains(name)).collect();
        let left = (seen.len() + unseen.len()).saturating_sub(CHART_NODES_MAX);
        // The nodes that ran come first.
        let mut names: Vec<&String> = seen.iter().chain(&unseen).copied().take(CHART_NODES_MAX).collect();
        names.sort_unstable();
        let number = |name: &String| names.binary_search(&name).ok();
        let own: BTreeSet<&String> = self.own.iter().flat_map(|(from, to)| [from, to]).collect();
        let node = |name: &&String| ChartNode {
            name: annals_view::words::tally([name.as_str()]),
            note: self
                .nodes
                .get(*name)
                .map(|node| format!("{} · {}", node.tasks, span(node.median())))
                .unwrap_or_default(),
            is_marked: own.contains(*name),
            is_seen: seen.contains(*name),
            is_due: at.next().any(|due| due == name.as_str()),
            is_start: name.as_str() == START,
            is_end: name.as_str() == END,
        };
        let edge = |(pair, times): (&(String, String), &u64)| {
            let (from, to) = (number(&pair.0)?, number(&pair.1)?);
            Some(ChartEdge { from, to, times: *times, is_marked: self.own.contains(pair) })
        };
        let nodes: Vec<ChartNode> = names.iter().map(node).collect();
        let untaken = self.drawing.iter().flat_map(|drawing| &drawing.edges);
        let untaken = untaken.filter(|pair| !self.transitions.contains_key(*pair)).map(|pair| (pair, &0));
        let edges: Vec<ChartEdge> = self.transitions.iter().chain(untaken).filter_map(edge).collect();
        if !nodes.is_empty() {
            flowchart::add_to(html, &nodes, &edges, "nodes and transitions; the path of this run is marked");
        }
        if edges.iter().any(|edge| edge.times == 0) || nodes.iter().any(|node| !node.is_seen) {
            html.literal(
                "<figcaption class=\"facts\"><span class=\"runs\">the path of this run</span>\
                 <span>grey: other runs took it</span><span>dashed: no step took it</span></figcaption>",
            );
        }
        if left > 0 {
            html.classed("p", "dim", &format!("{} more", count(left as u64, "node")));
        }
    }

    /// Adds the figures of the nodes, with bars of their durations on one scale.
    fn table(&self, html: &mut Html) {
        let longest = self.nodes.values().map(NodeFigures::median).max().unwrap_or(0).max(1);
        html.literal(
            "<table class=\"record nodes\"><thead><tr><th>node</th><th class=\"num\">tasks</th><th class=\"w\">median time</th>\
             <th class=\"num\"></th><th class=\"num\">tokens</th></tr></thead><tbody>",
        );
        for (name, node) in &self.nodes {
            html.open("tr", &[])
                .open("td", &[])
                .isolated(&shortened(&annals_view::words::tally([name.as_str()]), 40))
                .close("td");
            html.classed("td", "num", &grouped(node.tasks)).open("td", &[("class", "w")]);
            let width = format!("{:.1}%", (100.0 * node.median() as f64 / longest as f64).max(0.6));
            html.open("svg", &[("class", "bar"), ("aria-hidden", "true")]);
            html.element("rect", &[("width", &width), ("height", "8"), ("rx", "2")], "").close("svg").close("td");
            html.classed("td", "num", &span(node.median()));
            html.classed("td", "num", &if node.tokens > 0 { rounded(node.tokens) } else { String::new() }).close("tr");
        }
        html.close("tbody").close("table");
        let steps = count(self.steps as u64, "checkpoint");
        html.classed("p", "small dim", &format!("of the newest {steps} of the lineage"));
    }

    fn document(&self) -> Json {
        let node = |(name, node): (&String, &NodeFigures)| json!({ "node": name, "tasks": node.tasks, "median_us": node.median(), "tokens": node.tokens });
        let transition = |((from, to), n): (&(String, String), &u64)| json!({ "from": from, "to": to, "times": n, "in_run": self.own.contains(&(from.clone(), to.clone())) });
        let edge = |(from, to): &(String, String)| json!({ "from": from, "to": to });
        let drawing = self.drawing.as_ref().map(
            |drawing| json!({ "nodes": drawing.nodes, "edges": drawing.edges.iter().map(edge).collect::<Vec<_>>() }),
        );
        json!({
            "schema": 1,
            "checkpoints": self.steps,
            "drawing": drawing,
            "nodes": self.nodes.iter().map(node).collect::<Vec<_>>(),
            "transitions": self.transitions.iter().map(transition).collect::<Vec<_>>(),
        })
    }
}

impl StoredDrawing {
    /// Reads the drawing of the graph of a checkpoint from the cache; `None` if there is none that can be read.
    fn read(at: &Snapshot, version: Option<&str>) -> Option<Self> {
        let name = member(at, "graph").filter(|_| at.point().namespace.is_root())?;
        let key = CacheKey::new([DRAWINGS, &name], version.unwrap_or(NEWEST));
        let stored = at.store().cache().get(&key).ok()??.decode::<Value>().ok()?;
        let text = |value: &Value| match value.as_str()? {
            DRAWN_END => Some(END.to_owned()),
            name => Some(name.to_owned()),
        };
        let edge = |edge: &Value| Some((text(edge.get("source")?)?, text(edge.get("target")?)?));
        Some(Self {
            nodes: stored.get("nodes")?.as_list()?.iter().filter_map(text).collect(),
            edges: stored.get("edges")?.as_list()?.iter().filter_map(edge).collect(),
        })
    }
}

/// Returns a text of the metadata of a checkpoint.
fn member(at: &Snapshot, name: &str) -> Option<String> {
    metadata(at).get(name)?.as_str().map(ToOwned::to_owned)
}
