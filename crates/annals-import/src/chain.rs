//! Records that name their parents: nodes of one or more records each, and the lines from the roots to the leaves.
//!
//! Invariant: walking up ends, also in a damaged file. *Absent:* the records, and which leaf ends the main line.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::arena::DraftArena;
use crate::error::ImportError;
use crate::model::SessionMessage;
use crate::output::ReadOutput;

/// A node of a chain, with the facts of its source.
pub(crate) struct ChainNode<F> {
    /// The line of the first record.
    pub(crate) number: u64,
    /// The record that the first record hangs on.
    pub(crate) parent_record: Option<String>,
    /// The node of the record before the first one, which replaces a parent that is in no record.
    pub(crate) before: Option<usize>,
    /// The node that replaced such a parent.
    joined: Option<usize>,
    /// The node that this one hangs on, whatever its record says.
    pub(crate) caller: Option<usize>,
    /// The messages, by the numbers of their drafts.
    pub(crate) drafts: Vec<usize>,
    pub(crate) facts: F,
}

impl<F> ChainNode<F> {
    pub(crate) fn new(number: u64, parent_record: Option<String>, before: Option<usize>, facts: F) -> Self {
        Self { number, parent_record, before, joined: None, caller: None, drafts: Vec::new(), facts }
    }
}

/// The nodes of a file.
#[derive(Default)]
pub(crate) struct RecordChain<F> {
    pub(crate) nodes: Vec<ChainNode<F>>,
    /// The node of each record.
    pub(crate) by_id: HashMap<String, usize>,
}

impl<F> RecordChain<F> {
    /// Returns the node above a node.
    pub(crate) fn parent(&self, node: usize) -> Option<usize> {
        let of = &self.nodes[node];
        let recorded = || self.by_id.get(of.parent_record.as_ref()?).copied();
        of.caller.or_else(recorded).or(of.joined).filter(|parent| *parent != node)
    }

    /// Joins each node whose parent is in no record to the record before it, marks the first message at or below it,
    /// and reports it as `missing_parent`. A node with no record before it is a root.
    pub(crate) fn join(
        &mut self,
        arena: &mut DraftArena,
        out: &mut ReadOutput<'_>,
        file: &str,
    ) -> Result<(), ImportError> {
        let mut roots = self.roots();
        let mut joined = Vec::new();
        for node in 0..self.nodes.len() {
            let of = &self.nodes[node];
            let Some(named) = of.parent_record.as_ref().filter(|named| !self.by_id.contains_key(*named)) else {
                continue;
            };
            let Some(before) = of.before.filter(|_| of.caller.is_none()) else { continue };
            // A node does not join a record below it, which would cut both off.
            if root_of(&mut roots, before) != node {
                joined.push((node, before, named.clone()));
                roots[node] = before;
            }
        }
        joined.iter().for_each(|(node, before, _)| self.nodes[*node].joined = Some(*before));
        let firsts = self.first_messages();
        for (node, _, named) in joined {
            if let Some(first) = firsts[node].and_then(|first| self.nodes[first].drafts.first()) {
                arena.drafts[*first].is_joined = true;
            }
            out.unknown("missing_parent", format!("{file}:{}", self.nodes[node].number), named)?;
        }
        Ok(())
    }

    /// Returns for each node the first node with a message at or below it, with no message between the two.
    fn first_messages(&self) -> Vec<Option<usize>> {
        let parents: Vec<Option<usize>> = (0..self.nodes.len()).map(|node| self.parent(node)).collect();
        let mut children = vec![0_usize; self.nodes.len()];
        parents.iter().flatten().for_each(|parent| children[*parent] += 1);
        let of_node = |node: usize| Some(node).filter(|node| !self.nodes[*node].drafts.is_empty());
        let mut firsts: Vec<Option<usize>> = (0..self.nodes.len()).map(of_node).collect();
        // From the leaves up, each node after those below it.
        let mut ready: Vec<usize> = (0..self.nodes.len()).filter(|node| children[*node] == 0).collect();
        while let Some(node) = ready.pop() {
            let Some(parent) = parents[node] else { continue };
            if self.nodes[parent].drafts.is_empty() {
                firsts[parent] = [firsts[parent], firsts[node]].into_iter().flatten().min();
            }
            children[parent] -= 1;
            if children[parent] == 0 {
                ready.push(parent);
            }
        }
        firsts
    }

    /// Returns the nodes from the root to a node.
    pub(crate) fn line(&self, node: usize) -> Vec<usize> {
        let (mut line, mut seen) = (Vec::new(), HashSet::new());
        let mut next = Some(node);
        while let Some(above) = next.filter(|above| seen.insert(*above)) {
            line.push(above);
            next = self.parent(above);
        }
        line.reverse();
        debug_assert_eq!(line.last(), Some(&node), "a line ends in its node");
        line
    }

    /// Returns the drafts of a line of nodes.
    pub(crate) fn drafts(&self, line: &[usize]) -> impl Iterator<Item = usize> {
        line.iter().flat_map(|node| self.nodes[*node].drafts.iter().copied())
    }

    /// Returns the messages of a line of nodes.
    pub(crate) fn pick(&self, messages: &[Arc<SessionMessage>], line: &[usize]) -> Vec<Arc<SessionMessage>> {
        self.drafts(line).map(|draft| Arc::clone(&messages[draft])).collect()
    }

    /// Returns the nodes among some that have none of them below, but for one of them.
    pub(crate) fn leaves(&self, nodes: &[usize], but: usize) -> Vec<usize> {
        let mut has_below = HashSet::new();
        for node in nodes {
            let mut next = self.parent(*node);
            // A node that is known to have nodes below it has ancestors that are known as well.
            while let Some(above) = next.filter(|above| has_below.insert(*above)) {
                next = self.parent(above);
            }
        }
        let mut seen = HashSet::from([but]);
        nodes.iter().copied().filter(|node| !has_below.contains(node) && seen.insert(*node)).collect()
    }

    /// Returns the root of each node.
    pub(crate) fn roots(&self) -> Vec<usize> {
        let mut roots: Vec<Option<usize>> = vec![None; self.nodes.len()];
        for start in 0..self.nodes.len() {
            let (mut path, mut seen) = (Vec::new(), HashSet::new());
            let mut at = start;
            let root = loop {
                if let Some(root) = roots[at] {
                    break root;
                }
                seen.insert(at);
                path.push(at);
                match self.parent(at).filter(|parent| !seen.contains(parent)) {
                    Some(parent) => at = parent,
                    None => break at,
                }
            };
            path.into_iter().for_each(|node| roots[node] = Some(root));
        }
        roots.into_iter().enumerate().map(|(node, root)| root.unwrap_or(node)).collect()
    }
}

/// Returns the root above a node, where roots were joined to other nodes, and shortens the way to it.
fn root_of(roots: &mut [usize], node: usize) -> usize {
    let mut root = node;
    while roots[root] != root {
        root = roots[root];
    }
    let mut at = node;
    while roots[at] != root {
        at = std::mem::replace(&mut roots[at], root);
    }
    root
}

/// Orders items, each given with its id and that of its parent, so that a parent comes before its children.
pub(crate) fn order<T>(links: &[(String, Option<String>)], items: Vec<T>) -> Vec<T> {
    let by_id: HashMap<&str, usize> = links.iter().enumerate().map(|(at, (id, _))| (id.as_str(), at)).collect();
    let (mut order, mut seen) = (Vec::new(), HashSet::new());
    for start in 0..links.len() {
        let mut line = Vec::new();
        let mut next = Some(start);
        while let Some(at) = next.filter(|at| seen.insert(*at)) {
            line.push(at);
            next = links[at].1.as_deref().and_then(|parent| by_id.get(parent).copied());
        }
        order.extend(line.into_iter().rev());
    }
    debug_assert_eq!(order.len(), items.len(), "every item has one place in the order");
    let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    order.into_iter().filter_map(|at| items[at].take()).collect()
}
