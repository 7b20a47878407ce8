//! Finds the edges of a drawing: a walk runs the graph with tasks that follow every edge they have.
//!
//! The drawing therefore shows the possible edges: one that no run can take is missing, and a deferred node follows
//! the nodes that end before it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::compiled::{Graph, Outgoing};
use super::super::{END, START};
use crate::limits::DRAWING_STEPS_MAX;

/// An edge: source, target, whether it is conditional, label. The order is that of the drawing.
pub(super) type Edge = (Arc<str>, Arc<str>, bool, Option<Arc<str>>);

/// The number of the task of the start; the others have the number of their node plus 1.
const ENTRY: usize = 0;

/// A channel that a task writes, whether by condition, and the label.
type WalkWrite = (u32, bool, Option<Arc<str>>);

/// The effects of a task in one superstep.
struct WalkStep {
    /// The channels that it writes now.
    writes: BTreeSet<u32>,
    /// The channels that it may write, for the edges.
    may: BTreeSet<WalkWrite>,
}

/// The result of a walk.
#[derive(Default)]
pub(super) struct WalkResult {
    pub(super) edges: BTreeSet<Edge>,
    /// The nodes of the last superstep.
    pub(super) last: Vec<Arc<str>>,
}

/// A walk in progress.
struct Walk<'a> {
    graph: &'a Graph,
    found: WalkResult,
    /// The conditional writes of each task, which it makes when it runs for the first time.
    declared: BTreeMap<usize, BTreeSet<WalkWrite>>,
    /// The last writes of each task.
    sources: BTreeMap<usize, BTreeSet<WalkWrite>>,
    /// The joins with the tasks that have reached them.
    arrived: BTreeMap<u32, BTreeSet<usize>>,
    /// The triggers of deferred nodes that wait for the end of all other tasks.
    waiting: BTreeSet<u32>,
}

/// Walks through a graph.
pub(super) fn walk(graph: &Graph) -> WalkResult {
    let mut walk = Walk {
        graph,
        found: WalkResult::default(),
        declared: BTreeMap::new(),
        sources: BTreeMap::new(),
        arrived: BTreeMap::new(),
        waiting: BTreeSet::new(),
    };
    // The one node of an entrypoint takes the input itself.
    let mut tasks = vec![if graph.entry { 1 } else { ENTRY }];
    for _ in 0..DRAWING_STEPS_MAX {
        if tasks.is_empty() {
            break;
        }
        debug_assert!(tasks.iter().all(|task| *task <= graph.nodes.len()), "a task is the start or a node");
        walk.found.last = tasks.iter().map(|task| walk.name(*task)).collect();
        tasks = walk.superstep(&tasks);
    }
    walk.found
}

impl Walk<'_> {
    fn name(&self, task: usize) -> Arc<str> {
        match task {
            ENTRY => START.into(),
            task => Arc::clone(&self.graph.nodes[task - 1].name),
        }
    }

    fn out(&self, task: usize) -> &Outgoing {
        match task {
            ENTRY => &self.graph.start,
            task => &self.graph.nodes[task - 1].out,
        }
    }

    /// Runs tasks, and returns those that are due next.
    fn superstep(&mut self, tasks: &[usize]) -> Vec<usize> {
        let ran: BTreeMap<usize, WalkStep> = tasks.iter().map(|task| (*task, self.run(*task))).collect();
        self.sources.extend(ran.iter().map(|(task, ran)| (*task, ran.may.clone())));
        let mut causes: BTreeMap<u32, BTreeSet<(Arc<str>, usize, bool, Option<Arc<str>>)>> = BTreeMap::new();
        for (task, written) in &self.sources {
            for (channel, conditional, label) in written {
                let cause = (self.name(*task), *task, *conditional, label.clone());
                causes.entry(*channel).or_default().insert(cause);
            }
        }
        let updated = self.apply(&ran);
        let is_due = |task: &usize| self.graph.nodes[task - 1].triggers.iter().any(|trigger| updated.contains(trigger));
        let due: Vec<usize> = (1..=self.graph.nodes.len()).filter(is_due).collect();
        for task in &due {
            let target = self.name(*task);
            let mut caused_now = false;
            for trigger in &self.graph.nodes[task - 1].triggers {
                for (source, from, conditional, label) in causes.get(trigger).into_iter().flatten() {
                    self.found.edges.insert((Arc::clone(source), Arc::clone(&target), *conditional, label.clone()));
                    let written = (*trigger, *conditional, label.clone());
                    if ran.get(from).is_some_and(|ran| ran.may.contains(&written)) {
                        caused_now = true;
                    } else if let Some(sources) = self.sources.get_mut(from) {
                        sources.remove(&written);
                    }
                }
            }
            if !caused_now {
                // The deferred trigger waited for these tasks.
                for from in ran.keys() {
                    self.found.edges.insert((self.name(*from), Arc::clone(&target), true, None));
                }
            }
        }
        due
    }

    /// Runs a task: it writes to every plain edge, and the first time to every declared target of its conditions.
    fn run(&mut self, task: usize) -> WalkStep {
        let graph = self.graph;
        let mut writes: BTreeSet<u32> = self.out(task).edges.iter().copied().collect();
        writes.extend(self.out(task).joins.iter().map(|join| graph.joins[*join].channel));
        let mut labels: BTreeMap<u32, Option<Arc<str>>> = BTreeMap::new();
        if !self.declared.contains_key(&task) {
            let mut declared = BTreeSet::new();
            for (label, target) in graph.known_targets(task.checked_sub(1)) {
                if &*target == END {
                    self.found.edges.insert((self.name(task), target, true, label));
                } else if let Some(node) = graph.by_name.get(&target) {
                    let trigger = graph.trigger(*node);
                    declared.insert((trigger, true, label.clone()));
                    labels.insert(trigger, label);
                }
            }
            self.declared.insert(task, declared);
        }
        writes.extend(labels.keys().copied());
        let written = writes.iter().map(|channel| match labels.get(channel) {
            Some(label) => (*channel, true, label.clone()),
            None => (*channel, false, None),
        });
        let may = written.chain(self.declared.get(&task).into_iter().flatten().cloned()).collect();
        WalkStep { writes, may }
    }

    /// Applies writes, and returns the triggers that fire.
    fn apply(&mut self, ran: &BTreeMap<usize, WalkStep>) -> BTreeSet<u32> {
        let graph = self.graph;
        for trigger in ran.keys().filter(|task| **task != ENTRY).flat_map(|task| &graph.nodes[task - 1].triggers) {
            self.waiting.remove(trigger);
            if self.arrived.get(trigger).is_some_and(|arrived| full(graph, *trigger, arrived)) {
                self.arrived.remove(trigger);
            }
        }
        let mut fired = BTreeSet::new();
        for (task, channel) in
            ran.iter().flat_map(|(task, ran)| ran.writes.iter().map(move |channel| (*task, *channel)))
        {
            let waits = graph.waits_for_the_end(channel);
            let is_new = match graph.join_of(channel) {
                Some(_) => {
                    let arrived = self.arrived.entry(channel).or_default();
                    arrived.insert(task) && full(graph, channel, arrived)
                }
                None => true,
            };
            match waits {
                true if graph.join_of(channel).is_none() => _ = self.waiting.insert(channel),
                false if is_new => _ = fired.insert(channel),
                _ => {}
            }
        }
        if fired.is_empty() {
            fired.extend(self.waiting.iter().copied());
            let joins = self.arrived.iter().filter(|(channel, arrived)| full(graph, **channel, arrived));
            fired.extend(joins.map(|(channel, _)| *channel).filter(|channel| graph.waits_for_the_end(*channel)));
        }
        fired
    }
}

/// Returns whether all sources have reached a join.
fn full(graph: &Graph, channel: u32, arrived: &BTreeSet<usize>) -> bool {
    let names = |join: usize| graph.joins[join].names.iter().collect::<BTreeSet<_>>().len();
    graph.join_of(channel).is_some_and(|join| arrived.len() == names(join))
}
