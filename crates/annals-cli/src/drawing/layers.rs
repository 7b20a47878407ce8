//! Nodes in layers: every edge leads from a layer to the next, over places that it passes.

use annals_graph::graph::Drawing;

use super::GAP;

/// The number of passes that order and move the layers towards their neighbours.
const SWEEPS: usize = 6;

/// An item of a layer.
pub(super) enum LayerItem {
    /// A node, by number.
    Node(usize),
    /// The label of an edge.
    Label(String),
    /// A place that an edge passes.
    Pass,
}

/// A part of an edge between two layers.
pub(super) struct EdgePart {
    pub(super) upper: usize,
    pub(super) lower: usize,
    pub(super) dotted: bool,
    /// True if the edge leads up.
    pub(super) up: bool,
}

/// The layers of a drawing.
#[derive(Default)]
pub(super) struct Layers {
    pub(super) items: Vec<LayerItem>,
    pub(super) links: Vec<EdgePart>,
    /// The items of each layer, from left to right.
    pub(super) rows: Vec<Vec<usize>>,
    pub(super) left: Vec<usize>,
    pub(super) width: Vec<usize>,
}

/// An edge between two nodes, turned so that it leads down.
struct Down {
    from: usize,
    to: usize,
    turned: bool,
    /// Its place among the edges of the drawing.
    edge: usize,
}

impl Layers {
    /// Sorts the nodes of a drawing into layers.
    pub(super) fn of(drawing: &Drawing) -> Self {
        let count = drawing.nodes.len();
        let downs = turn(drawing);
        let is_linked = |node: usize| downs.iter().any(|down| down.from == node || down.to == node);
        let mut level = levels(count, drawing, &downs);
        let alone = (0..count).filter(|node| is_linked(*node)).map(|node| level[node] + 1).max().unwrap_or(0);
        (0..count).filter(|node| !is_linked(*node)).for_each(|node| level[node] = alone);
        let mut layers = Self { items: (0..count).map(LayerItem::Node).collect(), ..Self::default() };
        layers.rows = vec![Vec::new(); level.iter().map(|level| level + 1).max().unwrap_or(0)];
        (0..count).for_each(|node| layers.rows[level[node]].push(node));
        for down in &downs {
            let edge = &drawing.edges[down.edge];
            let between = level[down.from] + 1..level[down.to];
            let middle = (between.start + between.end) / 2;
            let mut upper = down.from;
            for at in between {
                let item = layers.items.len();
                layers.items.push(match &edge.label {
                    Some(label) if at == middle => LayerItem::Label(label.replace('\n', " ")),
                    _ => LayerItem::Pass,
                });
                layers.rows[at].push(item);
                layers.links.push(EdgePart { upper, lower: item, dotted: edge.conditional, up: down.turned });
                upper = item;
            }
            layers.links.push(EdgePart { upper, lower: down.to, dotted: edge.conditional, up: down.turned });
        }
        layers
    }

    /// Returns the links that leave an item downwards, from left to right.
    pub(super) fn below(&self, item: usize) -> Vec<usize> {
        self.sorted(|link| link.upper == item, |link| link.lower)
    }

    /// Returns the links that reach an item from above, from left to right.
    pub(super) fn above(&self, item: usize) -> Vec<usize> {
        self.sorted(|link| link.lower == item, |link| link.upper)
    }

    fn sorted(&self, is_own: impl Fn(&EdgePart) -> bool, other: impl Fn(&EdgePart) -> usize) -> Vec<usize> {
        let mut links: Vec<usize> = (0..self.links.len()).filter(|link| is_own(&self.links[*link])).collect();
        links.sort_by_key(|link| self.left.get(other(&self.links[*link])).copied());
        links
    }

    /// Returns the column in which a link leaves its upper item.
    pub(super) fn bottom_port(&self, link: usize) -> usize {
        let item = self.links[link].upper;
        self.port(item, self.below(item), link)
    }

    /// Returns the column in which a link reaches its lower item.
    pub(super) fn top_port(&self, link: usize) -> usize {
        let item = self.links[link].lower;
        self.port(item, self.above(item), link)
    }

    fn port(&self, item: usize, ports: Vec<usize>, link: usize) -> usize {
        debug_assert!(ports.contains(&link));
        let at = ports.iter().position(|port| *port == link).unwrap_or(0);
        match self.items[item] {
            // Evenly over the inner columns, so that a single port is in the middle.
            LayerItem::Node(_) => {
                let inner = self.width[item] - 2;
                self.left[item] + 1 + (inner * (2 * at + 1)) / (2 * ports.len().max(1))
            }
            LayerItem::Label(_) => self.left[item] + self.width[item] / 2,
            LayerItem::Pass => self.left[item],
        }
    }

    /// Gives every item its width and its column. `boxes` are the texts of the nodes.
    pub(super) fn place(&mut self, boxes: &[Vec<String>]) {
        let ports = |item: usize| {
            let count = |is_own: &dyn Fn(&EdgePart) -> bool| self.links.iter().filter(|link| is_own(link)).count();
            count(&|link| link.upper == item).max(count(&|link| link.lower == item))
        };
        let widths = (0..self.items.len()).map(|item| match &self.items[item] {
            LayerItem::Node(node) => {
                let text = boxes[*node].iter().map(|line| line.chars().count()).max().unwrap_or(0);
                // An odd width has a middle, so that lines between boxes are straight.
                (text + 4).max(4 * ports(item) + 1) | 1
            }
            LayerItem::Label(text) => text.chars().count(),
            LayerItem::Pass => 1,
        });
        self.width = widths.collect();
        self.left = vec![0; self.items.len()];
        (0..self.rows.len()).for_each(|row| self.pack(row));
        for sweep in 0..SWEEPS {
            let rows: Vec<usize> = match sweep % 2 {
                0 => (1..self.rows.len()).collect(),
                _ => (0..self.rows.len().saturating_sub(1)).rev().collect(),
            };
            for row in rows {
                self.order(row, sweep % 2 == 0);
                self.pack(row);
            }
        }
        for sweep in 0..SWEEPS {
            let rows: Vec<usize> = match sweep % 2 {
                0 => (1..self.rows.len()).collect(),
                _ => (0..self.rows.len().saturating_sub(1)).rev().collect(),
            };
            rows.into_iter().for_each(|row| self.center(row, sweep % 2 == 0));
        }
        let least = self.left.iter().copied().min().unwrap_or(0);
        self.left.iter_mut().for_each(|left| *left -= least);
    }

    /// Puts the items of a layer side by side.
    fn pack(&mut self, row: usize) {
        let mut column = 1 << 20;
        for item in &self.rows[row] {
            self.left[*item] = column;
            column += self.width[*item] + GAP;
        }
    }

    /// Returns twice the column that the middle of an item should have, after its neighbours in the layer above or
    /// below.
    fn wanted(&self, item: usize, from_above: bool) -> Option<usize> {
        let links: Vec<usize> = if from_above { self.above(item) } else { self.below(item) };
        let port = |link: &usize| if from_above { self.bottom_port(*link) } else { self.top_port(*link) };
        (!links.is_empty()).then(|| (2 * links.iter().map(port).sum::<usize>() + 1) / links.len())
    }

    /// Orders a layer by the positions of the neighbours.
    fn order(&mut self, row: usize, from_above: bool) {
        let middle = |item: usize| 2 * self.left[item] + self.width[item];
        let mut items: Vec<(usize, usize)> = self.rows[row]
            .iter()
            .map(|item| (self.wanted(*item, from_above).unwrap_or_else(|| middle(*item)), *item))
            .collect();
        items.sort_by_key(|(wanted, _)| *wanted);
        self.rows[row] = items.into_iter().map(|(_, item)| item).collect();
    }

    /// Moves the items of a layer as near to their neighbours as their order allows: overlapping items share the
    /// distance.
    fn center(&mut self, row: usize, from_above: bool) {
        // Without widths and gaps the columns only must not fall.
        let mut offset = 0;
        let mut groups: Vec<(usize, usize)> = Vec::new();
        let mut offsets = Vec::new();
        for item in &self.rows[row] {
            let wanted = match self.wanted(*item, from_above) {
                Some(twice) => (twice / 2).saturating_sub((self.width[*item] - 1) / 2),
                None => self.left[*item],
            };
            offsets.push(offset);
            groups.push((wanted.saturating_sub(offset), 1));
            offset += self.width[*item] + GAP;
            while let [.., (a, count_a), (b, count_b)] = groups[..]
                && a / count_a > b / count_b
            {
                groups.truncate(groups.len() - 2);
                groups.push((a + b, count_a + count_b));
            }
        }
        let columns = groups.iter().flat_map(|(sum, count)| std::iter::repeat_n(sum / count, *count));
        let columns: Vec<usize> = columns.zip(offsets).map(|(column, offset)| column + offset).collect();
        for (item, column) in self.rows[row].iter().zip(columns) {
            self.left[*item] = column;
        }
    }
}

/// Turns the edges that would close a circle.
fn turn(drawing: &Drawing) -> Vec<Down> {
    let number = |id: &str| drawing.nodes.iter().position(|node| node.id == id);
    let mut edges: Vec<Down> = Vec::new();
    for (edge, of) in drawing.edges.iter().enumerate() {
        if let (Some(from), Some(to)) = (number(&of.source), number(&of.target))
            && from != to
        {
            edges.push(Down { from, to, turned: false, edge });
        }
    }
    // 0: not seen, 1: on the way, 2: done.
    let mut seen = vec![0; drawing.nodes.len()];
    for root in 0..drawing.nodes.len() {
        let mut stack = vec![(root, 0)];
        if seen[root] != 0 {
            continue;
        }
        seen[root] = 1;
        while let Some((node, from)) = stack.pop() {
            let next = (from..edges.len()).find(|at| edges[*at].from == node && !edges[*at].turned);
            let Some(at) = next else {
                seen[node] = 2;
                continue;
            };
            stack.push((node, at + 1));
            match seen[edges[at].to] {
                0 => {
                    seen[edges[at].to] = 1;
                    stack.push((edges[at].to, 0));
                }
                1 => edges[at].turned = true,
                _ => {}
            }
        }
    }
    for edge in edges.iter_mut().filter(|edge| edge.turned) {
        std::mem::swap(&mut edge.from, &mut edge.to);
    }
    edges
}

/// Returns the layer of each node: as deep as the longest way to it. A label takes a layer.
fn levels(count: usize, drawing: &Drawing, downs: &[Down]) -> Vec<usize> {
    let mut level = vec![0; count];
    // Without a circle no way is longer than this.
    for _ in 0..count {
        for down in downs {
            let length = if drawing.edges[down.edge].label.is_some() { 2 } else { 1 };
            level[down.to] = level[down.to].max(level[down.from] + length);
        }
    }
    level
}
