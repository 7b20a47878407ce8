//! The checks of a graph before it is compiled.

use std::collections::HashSet;
use std::sync::Arc;

use crate::state::{Layout, ROOT};

use super::builder::{GraphDraft, NodeSpec};
use super::compiled::{BRANCH_CHANNEL, JOIN_CHANNEL, bad_name};
use super::node::Work;
use super::policy::TimeoutPolicy;
use super::problem::GraphProblem;
use super::{END, START};

/// Adds all problems of the names and edges of a graph.
pub(super) fn check(draft: &GraphDraft, layout: &dyn Layout, conflicts: &[Arc<str>], problems: &mut Vec<GraphProblem>) {
    check_names(draft, layout, problems);
    let nodes: HashSet<&str> = draft.nodes.iter().map(|node| &*node.name).collect();
    let mut check = Check { nodes, problems };
    for node in &draft.nodes {
        check.timeout(node, draft.defaults.timeout);
    }
    if draft.entry {
        return;
    }
    // Channels that several schemas declare in different ways.
    let conflict = |channel: &Arc<str>| GraphProblem::ChannelConflict { channel: channel.to_string() };
    check.problems.extend(conflicts.iter().map(conflict));
    for (from, to) in &draft.edges {
        check.source(from);
        check.target(from, to);
    }
    for (from, to) in &draft.joins {
        if from.is_empty() {
            check.problems.push(GraphProblem::EmptyJoin { target: to.to_string() });
        }
        for source in from {
            // A join has nodes as sources; START is not a node.
            if &**source == START {
                check.problems.push(GraphProblem::UnknownSource { node: source.to_string() });
            } else {
                check.source(source);
            }
        }
        check.target(&from.join("+"), to);
    }
    for (from, branch) in &draft.branches {
        check.source(from);
        for (_, node) in branch.map.iter().flatten() {
            check.branch_target(from, &branch.name, node);
        }
    }
    for node in &draft.nodes {
        for (to, _) in &node.settings.destinations {
            check.target(&node.name, to);
        }
    }
    let sources = draft.edges.iter().map(|(from, _)| from).chain(draft.branches.iter().map(|(from, _)| from));
    if !sources.into_iter().any(|from| &**from == START) {
        check.problems.push(GraphProblem::NoEntry);
    }
}

fn check_names(draft: &GraphDraft, layout: &dyn Layout, problems: &mut Vec<GraphProblem>) {
    let mut seen = HashSet::new();
    for NodeSpec { name, .. } in &draft.nodes {
        let separator = name.contains(['|', ':']).then(|| "it holds `|` or `:`, which separate namespaces".to_string());
        if let Some(reason) = bad_name(name).or(separator) {
            problems.push(GraphProblem::BadName { what: "node", name: name.to_string(), reason });
        }
        if !seen.insert(name) {
            problems.push(GraphProblem::DuplicateNode { node: name.to_string() });
        }
    }
    if draft.entry {
        // Its channels are those of the runtime.
        return;
    }
    let mut seen = HashSet::new();
    for name in (0..layout.len()).map(|field| layout.name(field)) {
        let trigger = (name.starts_with(BRANCH_CHANNEL) || name.starts_with(JOIN_CHANNEL))
            .then(|| "it is the name of a trigger".to_string());
        let control = (name.matches(':').count() > 1).then(|| {
            "it holds two colons, by which the channels of an executor are told from those of the state".into()
        });
        if let Some(reason) = bad_name(name).or(trigger).or(control) {
            problems.push(GraphProblem::BadName { what: "channel", name: name.to_string(), reason });
        }
        if &**name == ROOT && layout.len() > 1 {
            let reason = "a state that is one value has no other channels".to_string();
            problems.push(GraphProblem::BadName { what: "channel", name: name.to_string(), reason });
        }
        if !seen.insert(name) {
            problems.push(GraphProblem::DuplicateChannel { channel: name.to_string() });
        }
    }
}

struct Check<'a> {
    nodes: HashSet<&'a str>,
    problems: &'a mut Vec<GraphProblem>,
}

impl Check<'_> {
    fn source(&mut self, from: &str) {
        if from == END {
            self.problems.push(GraphProblem::EdgeFromEnd);
        } else if from != START && !self.nodes.contains(from) {
            self.problems.push(GraphProblem::UnknownSource { node: from.to_owned() });
        }
    }

    fn target(&mut self, from: &str, to: &str) {
        if to == START {
            self.problems.push(GraphProblem::EdgeToStart { source_node: from.to_owned() });
        } else if to != END && !self.nodes.contains(to) {
            self.problems.push(GraphProblem::UnknownTarget { node: to.to_owned(), source_node: from.to_owned() });
        }
    }

    fn branch_target(&mut self, from: &str, branch: &str, to: &str) {
        if to == START {
            self.problems.push(GraphProblem::EdgeToStart { source_node: from.to_owned() });
        } else if to != END && !self.nodes.contains(to) {
            let (node, source_node, branch) = (to.to_owned(), from.to_owned(), branch.to_owned());
            self.problems.push(GraphProblem::UnknownBranchTarget { node, source_node, branch });
        }
    }

    fn timeout(&mut self, node: &NodeSpec, default: Option<TimeoutPolicy>) {
        let handler = node.error_handler.as_ref().map(|handler| (handler, default));
        for (body, timeout) in [(&node.body, node.settings.timeout.or(default))].into_iter().chain(handler) {
            let name = node.name.to_string();
            match timeout {
                Some(timeout) if timeout.is_zero() => self.problems.push(GraphProblem::BadTimeout { node: name }),
                // A subgraph runs on a thread or not, as its driver chooses.
                Some(_) if matches!(body.work, Work::Blocking(_)) => {
                    self.problems.push(GraphProblem::SyncTimeout { node: name });
                }
                _ => {}
            }
        }
    }
}
