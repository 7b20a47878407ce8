//! A drawing for a terminal: boxes in layers, every edge on lines of its own.

mod canvas;
mod layers;
mod route;
mod svg;

use canvas::Canvas;
use layers::{LayerItem, Layers};

use annals_graph::graph::{Drawing, DrawingNode};

/// Free columns between two items of a layer.
const GAP: usize = 3;

/// Returns a graph as text for a terminal, from the top down, without styles: conditional edges are dotted,
/// a label is written on its line, `▲` marks an edge that leads back up, `↺` a node that can follow itself. Nodes
/// without edges are drawn at the end.
///
/// The same drawing always gives the same text. A column is a character; characters of double width shift the
/// text to their right.
pub(crate) fn text(drawing: &Drawing) -> String {
    let mut layers = Layers::of(drawing);
    let boxes: Vec<Vec<String>> = drawing.nodes.iter().map(|node| lines(drawing, node)).collect();
    layers.place(&boxes);
    let mut canvas = Canvas::default();
    let mut top = 0;
    for at in 0..layers.rows.len() {
        let height = layers.rows[at].iter().map(|item| match layers.items[*item] {
            LayerItem::Node(node) => boxes[node].len() + 2,
            LayerItem::Label(_) | LayerItem::Pass => 1,
        });
        let bottom = top + height.max().unwrap_or(0);
        for item in &layers.rows[at] {
            draw_item(&mut canvas, &layers, *item, &boxes, top..bottom);
        }
        top = bottom;
        if at + 1 < layers.rows.len() {
            top = route::between(&mut canvas, &layers, at, bottom);
        }
    }
    canvas.to_text()
}

/// Returns a graph as an SVG document, laid out as [`text`] does.
pub(crate) fn svg(drawing: &Drawing, title: &str) -> String {
    svg::of_text(&text(drawing), title)
}

/// Returns the text in the box of a node.
fn lines(drawing: &Drawing, node: &DrawingNode) -> Vec<String> {
    let mut name = node.id.clone();
    if let Some(own) = drawing.edges.iter().find(|edge| edge.source == node.id && edge.target == node.id) {
        name += " ↺";
        if let Some(label) = &own.label {
            name = format!("{name} {label}");
        }
    }
    let mut lines = vec![name];
    lines.extend(node.notes().iter().flat_map(|note| note.lines()).map(str::to_owned));
    lines
}

fn draw_item(canvas: &mut Canvas, layers: &Layers, item: usize, boxes: &[Vec<String>], rows: std::ops::Range<usize>) {
    let (left, width) = (layers.left[item], layers.width[item]);
    match &layers.items[item] {
        LayerItem::Node(node) => {
            canvas.frame(left, rows.start, width, &boxes[*node]);
            let below = rows.start + boxes[*node].len() + 2;
            for link in layers.below(item) {
                let column = layers.bottom_port(link);
                if !layers.links[link].up {
                    canvas.put(column, below - 1, '┬');
                }
                for row in below..rows.end {
                    canvas.down(column, row, layers.links[link].dotted);
                }
            }
        }
        LayerItem::Label(text) => {
            let dotted = layers.above(item).first().is_some_and(|link| layers.links[*link].dotted);
            let column = left + width / 2;
            rows.clone().for_each(|row| canvas.down(column, row, dotted));
            canvas.text(left, rows.start + rows.len() / 2, text);
        }
        LayerItem::Pass => {
            let dotted = layers.above(item).first().is_some_and(|link| layers.links[*link].dotted);
            rows.for_each(|row| canvas.down(left, row, dotted));
        }
    }
}

#[cfg(test)]
mod tests;
