//! A graph as inline SVG: nodes in ranks from the top down, the path of a run marked, and dashed what no run has taken.
//! Colours are classes of the stylesheet.
//!
//! Invariant: no line crosses a node. A line to the next rank runs in the gap between the two; one that skips ranks
//! goes around at the right, one that leads back at the left. Nodes with the same neighbours are one box.

use annals_view::words::shortened;

use crate::html::Html;

/// The sizes in pixels: a box, the gaps between boxes, a character of a name, and the distance of lines that run beside
/// each other.
const HEIGHT: usize = 46;
const GAP: usize = 24;
const LAYER: usize = 56;
const CHAR: usize = 9;
const TRACK: usize = 14;
/// A character of a note in pixels.
const NOTE: usize = 7;
/// Characters of a name.
const NAME_CHARS: usize = 24;
/// Nodes with the same neighbours that are one box.
const BUNDLE: usize = 4;
/// Passes that order the nodes of a rank by their neighbours.
const SWEEPS: usize = 4;

/// A node of the graph.
#[derive(Clone)]
pub(crate) struct ChartNode {
    pub(crate) name: String,
    /// The text below the name.
    pub(crate) note: String,
    pub(crate) is_marked: bool,
    /// False if no run reached it.
    pub(crate) is_seen: bool,
    /// True if it is due at the point that is shown.
    pub(crate) is_due: bool,
    /// True for the start of the graph.
    pub(crate) is_start: bool,
    /// True for the end of the graph, which is drawn below all other nodes.
    pub(crate) is_end: bool,
}

/// A transition between two nodes, by their numbers.
#[derive(Clone)]
pub(crate) struct ChartEdge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// The number of times that a run took it; 0 for an edge of the graph alone.
    pub(crate) times: u64,
    pub(crate) is_marked: bool,
}

/// The place of a box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ChartBox {
    left: usize,
    top: usize,
    width: usize,
}

impl ChartBox {
    fn middle(self) -> usize {
        self.left + self.width / 2
    }

    fn bottom(self) -> usize {
        self.top + HEIGHT
    }
}

/// A line: its path, the place of its tip, and that of its label.
struct ChartLine {
    path: String,
    tip: (usize, usize),
    label: (usize, usize),
}

/// The places of boxes and lines, and the size of the picture.
struct ChartPlaces {
    boxes: Vec<ChartBox>,
    lines: Vec<ChartLine>,
    size: (usize, usize),
}

/// Adds the picture of a graph.
pub(crate) fn add_to(html: &mut Html, nodes: &[ChartNode], edges: &[ChartEdge], label: &str) {
    debug_assert!(edges.iter().all(|edge| edge.from.max(edge.to) < nodes.len()), "an edge has two nodes");
    let (nodes, edges) = bundled(nodes, edges);
    let places = place(&nodes, &edges);
    let (width, height) = places.size;
    let (view_box, wide) = (format!("0 0 {width} {height}"), width.to_string());
    // A wide picture keeps the size of its letters and scrolls within its place.
    let class = if width > 520 { "flow broad" } else { "flow" };
    let attributes =
        [("class", class), ("viewBox", view_box.as_str()), ("width", &wide), ("role", "img"), ("aria-label", label)];
    html.open("svg", &attributes);
    // Marked lines are drawn last, so that no other covers them.
    for marked in [false, true] {
        for (edge, line) in edges.iter().zip(&places.lines).filter(|(edge, _)| edge.is_marked == marked) {
            add_line(html, edge, line, &nodes);
        }
    }
    nodes.iter().zip(&places.boxes).for_each(|(node, place)| add_node(html, node, *place));
    html.close("svg");
}

fn add_line(html: &mut Html, edge: &ChartEdge, line: &ChartLine, nodes: &[ChartNode]) {
    let class = match (edge.is_marked, edge.times) {
        (true, _) => "way own",
        (false, 1..) => "way",
        (false, 0) => "way never",
    };
    let taken = if edge.times == 0 { "never taken".to_owned() } else { format!("{} times", edge.times) };
    let (x, y) = line.tip;
    let tip = format!("M{} {}L{x} {}L{} {}z", x - 5, y - 8, y - 1, x + 5, y - 8);
    html.open("g", &[]);
    html.element("title", &[], &format!("{} to {}: {taken}", nodes[edge.from].name, nodes[edge.to].name));
    html.element("path", &[("class", class), ("d", &line.path)], "");
    html.element("path", &[("class", if edge.is_marked { "tip own" } else { "tip" }), ("d", &tip)], "");
    if edge.times > 1 {
        let (x, y) = (line.label.0.to_string(), line.label.1.to_string());
        html.element("text", &[("class", "tag"), ("x", &x), ("y", &y)], &format!("{}\u{d7}", edge.times));
    }
    html.close("g");
}

fn add_node(html: &mut Html, node: &ChartNode, place: ChartBox) {
    let class = match (node.is_due, node.is_marked, node.is_seen) {
        (true, ..) => "now",
        (false, true, _) => "own",
        (false, false, true) => "",
        (false, false, false) => "off",
    };
    let middle = place.middle().to_string();
    html.open("g", &[("class", class)]).element("title", &[], &node.name);
    if node.is_start || node.is_end {
        let y = (place.top + HEIGHT / 2).to_string();
        html.element("circle", &[("class", "end"), ("cx", &middle), ("cy", &y), ("r", "8")], "");
        if node.is_end {
            html.element("circle", &[("class", "mid"), ("cx", &middle), ("cy", &y), ("r", "4")], "");
        }
        html.close("g");
        return;
    }
    let (x, y, width) = (place.left.to_string(), place.top.to_string(), place.width.to_string());
    let class = if node.is_seen { "" } else { "never" };
    let rect = [("class", class), ("x", x.as_str()), ("y", &y), ("width", &width), ("height", "46"), ("rx", "8")];
    html.element("rect", &rect, "");
    let name_y = place.top + if node.note.is_empty() { 28 } else { 20 };
    html.element("text", &[("x", &middle), ("y", &name_y.to_string())], &shortened(&node.name, NAME_CHARS));
    if !node.note.is_empty() {
        let (y, note) = ((place.top + 37).to_string(), shortened(&node.note, NAME_CHARS + 4));
        html.element("text", &[("class", "note"), ("x", &middle), ("y", &y)], &note);
    }
    html.close("g");
}

/// Makes one node of those that have the same neighbours, if they are many.
fn bundled(nodes: &[ChartNode], edges: &[ChartEdge]) -> (Vec<ChartNode>, Vec<ChartEdge>) {
    let neighbours = |node: usize| {
        let mut before: Vec<usize> = edges.iter().filter(|edge| edge.to == node).map(|edge| edge.from).collect();
        let mut after: Vec<usize> = edges.iter().filter(|edge| edge.from == node).map(|edge| edge.to).collect();
        before.sort_unstable();
        after.sort_unstable();
        (before, after)
    };
    let all: Vec<_> = (0..nodes.len()).map(neighbours).collect();
    // The number of each node among the nodes that are drawn.
    let (mut number, mut drawn) = (vec![usize::MAX; nodes.len()], Vec::new());
    for at in 0..nodes.len() {
        if number[at] != usize::MAX {
            continue;
        }
        let is_alone = all[at].0.is_empty() && all[at].1.is_empty();
        let same: Vec<usize> = (at..nodes.len()).filter(|other| all[*other] == all[at] && !is_alone).collect();
        let mut node = nodes[at].clone();
        if same.len() >= BUNDLE {
            node.note = same.iter().map(|other| nodes[*other].name.as_str()).collect::<Vec<_>>().join(", ");
            node.name = format!("{} nodes", same.len());
            node.is_marked = same.iter().any(|other| nodes[*other].is_marked);
            node.is_seen = same.iter().any(|other| nodes[*other].is_seen);
            node.is_due = same.iter().any(|other| nodes[*other].is_due);
            same.iter().for_each(|other| number[*other] = drawn.len());
        } else {
            number[at] = drawn.len();
        }
        drawn.push(node);
    }
    let mut merged: Vec<ChartEdge> = Vec::new();
    for edge in edges {
        let (from, to) = (number[edge.from], number[edge.to]);
        match merged.iter_mut().find(|known| (known.from, known.to) == (from, to)) {
            Some(known) => {
                // Each node of a bundle was reached as often as the others, or less.
                known.times = known.times.max(edge.times);
                known.is_marked |= edge.is_marked;
            }
            None => merged.push(ChartEdge { from, to, ..edge.clone() }),
        }
    }
    (drawn, merged)
}

/// Returns for each edge whether it leads back: to a node from which its begin was reached.
fn leads_back(nodes: usize, edges: &[ChartEdge]) -> Vec<bool> {
    let mut back = vec![false; edges.len()];
    // 0: not visited, 1: on the way, 2: done.
    let mut state = vec![0_u8; nodes];
    let is_first = |node: &usize| !edges.iter().any(|edge| edge.to == *node && edge.from != *node);
    let starts: Vec<usize> = (0..nodes).filter(is_first).chain(0..nodes).collect();
    for start in starts {
        let mut way = vec![(start, 0)];
        if state[start] != 0 {
            continue;
        }
        state[start] = 1;
        while let Some((node, next)) = way.pop() {
            match (next..edges.len()).find(|edge| edges[*edge].from == node) {
                Some(edge) => {
                    way.push((node, edge + 1));
                    let to = edges[edge].to;
                    back[edge] = state[to] == 1;
                    if state[to] == 0 {
                        state[to] = 1;
                        way.push((to, 0));
                    }
                }
                None => state[node] = 2,
            }
        }
    }
    back
}

/// Returns the rank of each node: the longest way to it that does not lead back. The end is below all others.
fn ranks(nodes: &[ChartNode], edges: &[ChartEdge], back: &[bool]) -> Vec<usize> {
    let mut ranks = vec![0; nodes.len()];
    // The longest way has fewer edges than there are nodes.
    for _ in 0..nodes.len() {
        let mut has_changed = false;
        for (edge, _) in edges.iter().zip(back).filter(|(_, back)| !**back) {
            let least = ranks[edge.from] + 1;
            if ranks[edge.to] < least && least < nodes.len() {
                (ranks[edge.to], has_changed) = (least, true);
            }
        }
        if !has_changed {
            break;
        }
    }
    let others = nodes.iter().zip(&ranks).filter(|(node, _)| !node.is_end).map(|(_, rank)| rank + 1);
    let last = others.max().unwrap_or(0);
    nodes.iter().zip(&mut ranks).filter(|(node, _)| node.is_end).for_each(|(_, rank)| *rank = last);
    ranks
}

/// Returns the nodes of each rank, beside those that they are joined with.
fn ordered(ranks: &[usize], edges: &[ChartEdge]) -> Vec<Vec<usize>> {
    let count = ranks.iter().max().map_or(0, |last| last + 1);
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); count];
    ranks.iter().enumerate().for_each(|(node, rank)| rows[*rank].push(node));
    for sweep in 0..SWEEPS {
        for row in 0..count {
            let row = if sweep % 2 == 0 { row } else { count - 1 - row };
            // The place of each node in its rank, as a part of it.
            let mut place = vec![0.0; ranks.len()];
            for nodes in &rows {
                nodes.iter().enumerate().for_each(|(at, node)| place[*node] = (at as f64 + 0.5) / nodes.len() as f64);
            }
            let weight = |node: usize| {
                let near = edges.iter().filter_map(|edge| match (edge.from == node, edge.to == node) {
                    (true, false) => Some(edge.to),
                    (false, true) => Some(edge.from),
                    _ => None,
                });
                let near: Vec<f64> = near.map(|other| place[other]).collect();
                if near.is_empty() { place[node] } else { near.iter().sum::<f64>() / near.len() as f64 }
            };
            let weights: Vec<f64> = (0..ranks.len()).map(weight).collect();
            rows[row].sort_by(|a, b| weights[*a].total_cmp(&weights[*b]));
        }
    }
    rows
}

fn place(nodes: &[ChartNode], edges: &[ChartEdge]) -> ChartPlaces {
    let back = leads_back(nodes.len(), edges);
    let ranks = ranks(nodes, edges, &back);
    let rows = ordered(&ranks, edges);
    let width = |node: usize| match nodes[node].is_start || nodes[node].is_end {
        true => 2 * TRACK,
        false => {
            let chars = nodes[node].name.chars().count().max(nodes[node].note.chars().count() * NOTE / CHAR);
            (chars.clamp(9, NAME_CHARS) + 3) * CHAR
        }
    };
    let row_width = |row: &Vec<usize>| row.iter().map(|node| width(*node) + GAP).sum::<usize>();
    let widest = rows.iter().map(row_width).max().unwrap_or(0);
    let is_loop = |at: usize| edges[at].from == edges[at].to;
    let skips = |at: usize| !back[at] && ranks[edges[at].to] != ranks[edges[at].from] + 1;
    let around = |test: &dyn Fn(usize) -> bool| (0..edges.len()).filter(|at| !is_loop(*at) && test(*at)).count();
    let margin = GAP + TRACK * around(&|at| back[at]);
    let whole = margin + widest + GAP + TRACK * around(&skips);
    let mut boxes = vec![ChartBox::default(); nodes.len()];
    for (rank, row) in rows.iter().enumerate() {
        let mut left = margin + (widest - row_width(row)) / 2 + GAP / 2;
        for node in row {
            boxes[*node] = ChartBox { left, top: GAP / 2 + rank * (HEIGHT + LAYER), width: width(*node) };
            left += width(*node) + GAP;
        }
    }
    let (mut at_left, mut at_right) = (0, 0);
    let lines = edges.iter().enumerate().map(|(at, edge)| {
        let (from, to) = (boxes[edge.from], boxes[edge.to]);
        if is_loop(at) {
            itself(from)
        } else if back[at] {
            at_left += 1;
            aside(from, to, margin - TRACK * at_left, at_left, false)
        } else if skips(at) {
            at_right += 1;
            aside(from, to, margin + widest + TRACK * at_right, at_right, true)
        } else {
            down(from, to, nodes[edge.from].is_start, nodes[edge.to].is_end)
        }
    });
    let lines = lines.collect();
    ChartPlaces { boxes, lines, size: (whole, (rows.len() * (HEIGHT + LAYER)).max(HEIGHT)) }
}

/// A line to the next rank.
fn down(from: ChartBox, to: ChartBox, is_start: bool, is_end: bool) -> ChartLine {
    let (x, to_x) = (from.middle(), to.middle());
    // A circle is smaller than a box.
    let y = if is_start { from.bottom() - HEIGHT / 2 + 8 } else { from.bottom() };
    let to_y = if is_end { to.top + HEIGHT / 2 - 8 } else { to.top };
    let (low, high) = (from.bottom() + LAYER / 2, to.top - LAYER / 2);
    let path = if x == to_x {
        format!("M{x} {y}V{}", to_y - 6)
    } else {
        format!("M{x} {y}V{}C{x} {low} {to_x} {high} {to_x} {}V{}", from.bottom(), to.top - 8, to_y - 6)
    };
    ChartLine { path, tip: (to_x, to_y), label: (x.midpoint(to_x) + 16, low + 4) }
}

/// A line around the ranks between: it runs in the gap below its begin, beside all nodes, and in the gap above its end.
fn aside(from: ChartBox, to: ChartBox, beside: usize, track: usize, is_right: bool) -> ChartLine {
    let port = |of: ChartBox| if is_right { of.middle() + of.width / 4 } else { of.middle() - of.width / 4 };
    let (x, to_x, step) = (port(from), port(to), 5 * (track % 3));
    let (low, high) = (from.bottom() + 12 + step, to.top.saturating_sub(14 + step));
    let path = format!("M{x} {}V{low}H{beside}V{high}H{to_x}V{}", from.bottom(), to.top - 6);
    let y = low.midpoint(high);
    ChartLine { path, tip: (to_x, to.top), label: (if is_right { beside - 12 } else { beside + 12 }, y) }
}

/// A line from a node to itself, at its lower right corner.
fn itself(of: ChartBox) -> ChartLine {
    let (x, y) = (of.left + of.width - 24, of.bottom());
    let path = format!("M{} {y}v12H{}V{}", x + 16, x - 4, y + 8);
    // The tip points up into the box: it is drawn as one that points down from above the line.
    ChartLine { path, tip: (x - 4, y + 9), label: (x + 6, y + 26) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: usize, to: usize) -> ChartEdge {
        ChartEdge { from, to, times: 1, is_marked: from == 0 }
    }

    fn node(name: &str) -> ChartNode {
        ChartNode {
            name: name.into(),
            note: "2".into(),
            is_marked: name == "<a>",
            is_seen: name != "b",
            is_due: false,
            is_start: name == "(start)",
            is_end: name == "(end)",
        }
    }

    fn ranked(nodes: &[ChartNode], edges: &[ChartEdge]) -> Vec<usize> {
        ranks(nodes, edges, &leads_back(nodes.len(), edges))
    }

    #[test]
    fn ranks_are_the_longest_ways_also_in_a_circle() {
        let four = ["a", "b", "c", "d"].map(node);
        assert_eq!(ranked(&four, &[edge(0, 1), edge(0, 2), edge(1, 3), edge(2, 3), edge(3, 0)]), [0, 1, 1, 2]);
        assert_eq!(ranked(&four, &[edge(0, 1), edge(1, 2), edge(2, 3), edge(0, 3)]), [0, 1, 2, 3]);
        assert_eq!(ranked(&four[..3], &[edge(0, 1), edge(1, 1), edge(2, 1)]), [0, 1, 0]);
        assert_eq!(ranked(&four[..2], &[edge(0, 1), edge(1, 0)]), [0, 1]);
        assert_eq!(ranked(&four[..2], &[]), [0, 0]);
    }

    #[test]
    fn the_end_is_below_all_other_nodes() {
        let nodes = ["(end)", "ask", "plan", "write"].map(node);
        assert_eq!(ranked(&nodes, &[edge(1, 2), edge(2, 3), edge(1, 0), edge(3, 0)]), [3, 0, 1, 2]);
    }

    /// The points of a path, with those that a curve is drawn by.
    fn points(path: &str) -> Vec<(f64, f64)> {
        let spaced: String =
            path.chars().flat_map(|c| if c.is_ascii_alphabetic() { vec![' ', c, ' '] } else { vec![c] }).collect();
        let (mut points, mut op, mut numbers) = (vec![], ' ', Vec::new());
        for word in spaced.split_whitespace() {
            match word.parse::<f64>() {
                Ok(number) => numbers.push(number),
                Err(_) => (op, numbers) = (word.chars().next().unwrap(), Vec::new()),
            }
            let (x, y) = points.last().copied().unwrap_or((0.0, 0.0));
            match (op, &numbers[..]) {
                ('V', [to]) => points.push((x, *to)),
                ('v', [by]) => points.push((x, y + by)),
                ('H', [to]) => points.push((*to, y)),
                ('M' | 'C', [.., x, y]) if numbers.len() % 2 == 0 => points.push((*x, *y)),
                _ => {}
            }
        }
        points
    }

    #[test]
    fn no_line_crosses_a_node() {
        let names =
            ["(start)", "build", "test", "fix", "package", "approve", "publish", "rollback", "announce", "(end)"];
        let nodes = names.map(node);
        let edges = [
            (0, 1),
            (1, 2),
            (2, 3),
            (3, 1),
            (2, 4),
            (4, 5),
            (5, 6),
            (5, 7),
            (6, 7),
            (6, 8),
            (8, 9),
            (7, 9),
            (2, 9),
            (8, 8),
            (9, 0),
            (0, 9),
            (5, 1),
        ]
        .map(|(from, to)| edge(from, to));
        let places = place(&nodes, &edges);
        for (edge, line) in edges.iter().zip(&places.lines) {
            let points = points(&line.path);
            assert!(points.len() >= 2, "{}", line.path);
            for (at, of) in places.boxes.iter().enumerate().filter(|(at, _)| ![edge.from, edge.to].contains(at)) {
                let (left, right) = (of.left as f64, (of.left + of.width) as f64);
                let (top, bottom) = (of.top as f64, of.bottom() as f64);
                for pair in points.windows(2) {
                    let (x, y) = ((pair[0].0, pair[1].0), (pair[0].1, pair[1].1));
                    let beside = x.0.max(x.1) <= left || x.0.min(x.1) >= right;
                    let above = y.0.max(y.1) <= top || y.0.min(y.1) >= bottom;
                    assert!(
                        beside || above,
                        "{} to {} crosses {}: {}",
                        names[edge.from],
                        names[edge.to],
                        names[at],
                        line.path
                    );
                }
            }
            let (width, height) = (places.size.0 as f64, places.size.1 as f64);
            assert!(
                points.iter().all(|(x, y)| (0.0..=width).contains(x) && (0.0..=height).contains(y)),
                "{}",
                line.path
            );
        }
        for (at, of) in places.boxes.iter().enumerate() {
            let apart = |other: &ChartBox| {
                of.top != other.top || of.left + of.width <= other.left || other.left + other.width <= of.left
            };
            assert!(places.boxes.iter().skip(at + 1).all(apart), "boxes stand apart");
        }
    }

    #[test]
    fn nodes_with_the_same_neighbours_are_one_box() {
        let nodes: Vec<ChartNode> = ["agent", "s1", "s2", "s3", "s4", "s5", "choose"].map(node).to_vec();
        let edges: Vec<ChartEdge> = (1..6).flat_map(|at| [edge(0, at), edge(at, 6)]).collect();
        let (nodes, edges) = bundled(&nodes, &edges);
        assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["agent", "5 nodes", "choose"]);
        assert_eq!((nodes[1].note.as_str(), edges.len()), ("s1, s2, s3, s4, s5", 2));
    }

    #[test]
    fn a_picture_has_its_names_and_marks() {
        let nodes = [node("<a>"), node("b"), node(&"long ".repeat(20))];
        let edges =
            [edge(0, 1), edge(1, 2), ChartEdge { times: 0, ..edge(2, 0) }, ChartEdge { times: 3, ..edge(1, 1) }];
        let mut html = Html::new();
        add_to(&mut html, &nodes, &edges, "graph");
        let markup = html.into_markup();
        assert!(
            markup.contains("&lt;a&gt;</text>") && markup.contains("<g class=\"own\"><title>&lt;a&gt;"),
            "{markup}"
        );
        assert_eq!((markup.matches("class=\"way").count(), markup.matches("class=\"way own\"").count()), (4, 1));
        assert_eq!((markup.matches("class=\"off\"").count(), markup.matches("class=\"way never\"").count()), (1, 1));
        assert!(markup.contains(">3\u{d7}</text>") && markup.matches("class=\"tag\"").count() == 1, "{markup}");
    }
}
