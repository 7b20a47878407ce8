//! The fingerprint of a graph: short hashes of its nodes, its edges and its channels, by names.
//!
//! Invariant: it does not depend on the order in which the parts were added. *Absent:* the functions of nodes, of which
//! a program knows no hash: a version tells those apart.

use std::sync::Arc;

use crate::base::limits::NAME_BYTES_MAX;
use crate::hash;
use crate::state::Layout;

use super::compiled::{Join, Node, Outgoing};
use super::problem::GraphProblem;

/// The version that a program gave to a graph, with the fingerprint of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GraphCode {
    pub(crate) version: String,
    pub(crate) fingerprint: String,
}

impl GraphCode {
    /// Returns the text of the metadata member `graph_code`.
    pub(crate) fn to_text(&self) -> String {
        format!("{}#{}", self.version, self.fingerprint)
    }

    /// Reads such a text.
    pub(crate) fn of_text(text: &str) -> Option<Self> {
        let (version, fingerprint) = text.rsplit_once('#')?;
        Some(Self { version: version.to_owned(), fingerprint: fingerprint.to_owned() })
    }

    /// Returns the names of the parts in which it differs from another one.
    pub(crate) fn differs_in(&self, other: &Self) -> Vec<&'static str> {
        let mut parts = Vec::new();
        if self.version != other.version {
            parts.push("version");
        }
        let own = self.fingerprint.as_bytes().chunks(PART_DIGITS);
        let others = other.fingerprint.as_bytes().chunks(PART_DIGITS);
        let differing = own.zip(others).zip(["nodes", "edges", "channels"]).filter(|((own, other), _)| own != other);
        parts.extend(differing.map(|(_, name)| name));
        parts
    }
}

/// The number of hexadecimal digits of a part.
const PART_DIGITS: usize = 5;

/// Returns the fingerprint of the parts of a graph: five hexadecimal digits each for nodes, edges and channels.
pub(super) fn fingerprint(
    layout: &dyn Layout,
    channels: &[Arc<str>],
    nodes: &[Node],
    (start, joins): (&Outgoing, &[Join]),
) -> String {
    let of_node = |node: &Node| {
        let child = node.body.child.as_ref().map_or("", |child| &child.fingerprint);
        let handler = node.handler.map_or("", |handler| &nodes[handler].name);
        format!("{}|{child}|{handler}|{}", node.name, node.settings.defer)
    };
    let of_field = |field: usize| {
        let (kind, present) = (layout.kind(field), layout.starts_present(field));
        format!("{}|{kind:?}|{present}|{}", layout.name(field), layout.may_idle(field))
    };
    let sources = nodes.iter().map(|node| (&*node.name, &node.out)).chain([(super::START, start)]);
    let edges = sources.flat_map(|(from, out)| edges_of(from, out, channels, joins)).collect();
    let parts = [nodes.iter().map(of_node).collect(), edges, (0..layout.len()).map(of_field).collect()];
    parts.into_iter().map(part_digits).collect()
}

/// Returns the edges that leave a node, each as a text.
fn edges_of(from: &str, out: &Outgoing, channels: &[Arc<str>], joins: &[Join]) -> Vec<String> {
    let edges = out.edges.iter().map(|channel| format!("{from}|{}", channels[*channel as usize]));
    let joins = out.joins.iter().map(|join| format!("{from}|{}", channels[joins[*join].channel as usize]));
    let branches = out.branches.iter().map(|branch| format!("{from}|?{}", branch.name));
    edges.chain(joins).chain(branches).collect()
}

fn part_digits(mut texts: Vec<String>) -> String {
    texts.sort();
    let mut digits = hash::digits(hash::xxh3_128(texts.join("\n").as_bytes()));
    digits.truncate(PART_DIGITS);
    digits
}

/// Returns the problem of a version that cannot be stored.
pub(super) fn bad_version(version: &str) -> Option<GraphProblem> {
    let reason = match version.len() {
        0 => "it is empty".to_owned(),
        bytes if bytes > NAME_BYTES_MAX => format!("it has {bytes} bytes, the limit is {NAME_BYTES_MAX}"),
        _ => return None,
    };
    Some(GraphProblem::BadName { what: "version", name: version.to_owned(), reason })
}
