//! A graph as inline SVG: nodes in layers from the top down with their counts, transitions with theirs, the path of a
//! run marked, and dashed what no run has taken. Colours are classes of the stylesheet.

use std::collections::VecDeque;

use crate::html::Html;
use crate::words::shortened;

/// The sizes in pixels: a box, the gaps between boxes, and a character of a name.
const HEIGHT: usize = 34;
const GAP: usize = 28;
const LAYER: usize = 64;
const CHAR: usize = 8;
/// Characters of a name.
const NAME_CHARS: usize = 28;

/// A node of the graph.
pub(crate) struct ChartNode {
    pub(crate) name: String,
    /// The text below the name.
    pub(crate) note: String,
    pub(crate) is_marked: bool,
    /// False if no run reached it.
    pub(crate) is_seen: bool,
    /// True for the end of the graph, which is drawn below all other nodes.
    pub(crate) is_end: bool,
}

/// A transition between two nodes, by their numbers.
pub(crate) struct ChartEdge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// The number of times that a run took it; 0 for an edge of the graph alone.
    pub(crate) times: u64,
    pub(crate) is_marked: bool,
}

/// The left side, the top and the width of each box, and the size of the picture.
struct ChartPlaces {
    boxes: Vec<(usize, usize, usize)>,
    size: (usize, usize),
}

/// Adds the picture of a graph.
pub(crate) fn add_to(html: &mut Html, nodes: &[ChartNode], edges: &[ChartEdge], label: &str) {
    debug_assert!(edges.iter().all(|edge| edge.from.max(edge.to) < nodes.len()), "an edge has two nodes");
    let mut layers = layers(nodes.len(), edges);
    put_end_last(nodes, &mut layers);
    let places = place(nodes, &layers);
    let (width, height) = places.size;
    let (view_box, wide, high) = (format!("0 0 {width} {height}"), width.to_string(), height.to_string());
    let attributes = [
        ("class", "chart"),
        ("viewBox", view_box.as_str()),
        ("width", wide.as_str()),
        ("height", high.as_str()),
        ("role", "img"),
        ("aria-label", label),
    ];
    html.within("svg", &attributes, |html| {
        // Marked lines are drawn last, so that no other covers them.
        for marked in [false, true] {
            edges.iter().filter(|edge| edge.is_marked == marked).for_each(|edge| line(html, edge, &places));
        }
        for (node, (left, top, width)) in nodes.iter().zip(&places.boxes) {
            let class = match (node.is_marked, node.is_seen) {
                (true, _) => "node marked",
                (false, true) => "node",
                (false, false) => "node unseen",
            };
            let (x, y, w, h) = (left.to_string(), top.to_string(), width.to_string(), HEIGHT.to_string());
            html.element("rect", &[("class", class), ("x", &x), ("y", &y), ("width", &w), ("height", &h)], "");
            let (x, name_y, note_y) = ((left + width / 2).to_string(), (top + 15).to_string(), (top + 29).to_string());
            html.element("text", &[("x", &x), ("y", &name_y)], &shortened(&node.name, NAME_CHARS));
            html.element("text", &[("class", "note"), ("x", &x), ("y", &note_y)], &node.note);
        }
    });
}

/// Returns the layer of each node: its distance from the first nodes, which no other one leads to.
fn layers(nodes: usize, edges: &[ChartEdge]) -> Vec<usize> {
    let mut layer: Vec<Option<usize>> = vec![None; nodes];
    let is_first = |node: &usize| !edges.iter().any(|edge| edge.to == *node && edge.from != *node);
    let mut queue: VecDeque<usize> = (0..nodes).filter(is_first).collect();
    queue.iter().for_each(|node| layer[*node] = Some(0));
    for start in 0..nodes {
        if queue.is_empty() && layer[start].is_none() {
            layer[start] = Some(0);
            queue.push_back(start);
        }
        while let Some(node) = queue.pop_front() {
            let next = layer[node].unwrap_or(0) + 1;
            for edge in edges.iter().filter(|edge| edge.from == node) {
                if layer[edge.to].is_none() {
                    layer[edge.to] = Some(next);
                    queue.push_back(edge.to);
                }
            }
        }
    }
    layer.into_iter().map(|layer| layer.unwrap_or(0)).collect()
}

/// Puts the end of the graph below all other nodes: an edge that leaves early must not draw it beside them.
fn put_end_last(nodes: &[ChartNode], layers: &mut [usize]) {
    let others = nodes.iter().zip(&*layers).filter(|(node, _)| !node.is_end).map(|(_, layer)| layer + 1);
    let last = others.max().unwrap_or(0);
    nodes.iter().zip(layers).filter(|(node, _)| node.is_end).for_each(|(_, layer)| *layer = last);
}

fn place(nodes: &[ChartNode], layers: &[usize]) -> ChartPlaces {
    let width = |node: &ChartNode| (node.name.chars().count().clamp(8, NAME_CHARS) + 2) * CHAR;
    let count = layers.iter().max().map_or(0, |last| last + 1);
    let mut widths = vec![0; count];
    for (node, layer) in nodes.iter().zip(layers) {
        widths[*layer] += width(node) + GAP;
    }
    let whole = widths.iter().max().copied().unwrap_or(0) + 2 * GAP;
    let mut next: Vec<usize> = widths.iter().map(|width| (whole - width) / 2 + GAP / 2).collect();
    let boxes = nodes.iter().zip(layers).map(|(node, layer)| {
        let left = next[*layer];
        next[*layer] += width(node) + GAP;
        (left, GAP / 2 + layer * (HEIGHT + LAYER), width(node))
    });
    let boxes = boxes.collect();
    ChartPlaces { boxes, size: (whole, count * (HEIGHT + LAYER)) }
}

/// Adds a transition: down to a later layer, or around at the right to an earlier one or to the node itself.
fn line(html: &mut Html, edge: &ChartEdge, places: &ChartPlaces) {
    let ((left, top, width), (to_left, to_top, to_width)) = (places.boxes[edge.from], places.boxes[edge.to]);
    let (x, to_x) = (left + width / 2, to_left + to_width / 2);
    let (path, at) = if to_top > top {
        let (y, bend) = (top + HEIGHT, (to_top - top - HEIGHT) / 2);
        let path = format!("M{x} {y}C{x} {} {to_x} {} {to_x} {to_top}", y + bend, to_top - bend);
        (path, (x.midpoint(to_x) + 4, (y + to_top) / 2 + 4))
    } else {
        let (right, y, to_right, to_y) = (left + width, top + HEIGHT - 8, to_left + to_width, to_top + 8);
        let out = right.max(to_right) + GAP;
        (format!("M{right} {y}C{out} {y} {out} {to_y} {to_right} {to_y}"), (out - 14, y.midpoint(to_y) + 4))
    };
    let class = match (edge.is_marked, edge.times) {
        (true, _) => "edge marked",
        (false, 1..) => "edge",
        (false, 0) => "edge unseen",
    };
    html.element("path", &[("class", class), ("d", &path)], "");
    if edge.times == 0 {
        return;
    }
    let (x, y) = (at.0.to_string(), at.1.to_string());
    html.element("text", &[("class", "note"), ("x", &x), ("y", &y)], &edge.times.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: usize, to: usize) -> ChartEdge {
        ChartEdge { from, to, times: 1, is_marked: from == 0 }
    }

    #[test]
    fn nodes_are_in_layers_also_in_a_circle() {
        assert_eq!(layers(4, &[edge(0, 1), edge(0, 2), edge(1, 3), edge(2, 3), edge(3, 0)]), [0, 1, 1, 2]);
        assert_eq!(layers(3, &[edge(0, 1), edge(1, 1), edge(2, 1)]), [0, 1, 0]);
        assert_eq!(layers(2, &[]), [0, 0]);
    }

    #[test]
    fn the_end_is_below_all_other_nodes() {
        let node = |name: &str| ChartNode {
            name: name.into(),
            note: String::new(),
            is_marked: false,
            is_seen: true,
            is_end: name == "(end)",
        };
        let nodes = ["(end)", "ask", "plan", "write"].map(node);
        let edges = [edge(1, 2), edge(2, 3), edge(1, 0), edge(3, 0)];
        let mut layers = layers(4, &edges);
        assert_eq!(layers, [1, 0, 1, 2], "the shortest way to the end leads beside the second node");
        put_end_last(&nodes, &mut layers);
        assert_eq!(layers, [3, 0, 1, 2]);
    }

    #[test]
    fn a_picture_has_its_nodes_within_it() {
        let node = |name: &str| {
            let (is_marked, is_seen) = (name == "<a>", name != "b");
            ChartNode { name: name.into(), note: "2".into(), is_marked, is_seen, is_end: name == "(end)" }
        };
        let nodes = [node("<a>"), node("b"), node(&"long ".repeat(20))];
        let edges = [edge(0, 1), edge(1, 2), ChartEdge { times: 0, ..edge(2, 0) }];
        let places = place(&nodes, &layers(3, &edges));
        for (left, top, width) in &places.boxes {
            assert!(left + width < places.size.0 && top + HEIGHT <= places.size.1, "{left} {top} {width}");
        }
        let mut html = Html::new();
        add_to(&mut html, &nodes, &edges, "graph");
        let markup = html.into_markup();
        assert!(markup.contains("&lt;a&gt;</text>") && markup.contains("class=\"node marked\""), "{markup}");
        assert_eq!((markup.matches("<path").count(), markup.matches("edge marked").count()), (3, 1));
        assert_eq!((markup.matches("node unseen").count(), markup.matches("edge unseen").count()), (1, 1));
        assert_eq!(markup.matches("class=\"note\"").count(), 5, "an edge that was not taken has no count");
    }
}
