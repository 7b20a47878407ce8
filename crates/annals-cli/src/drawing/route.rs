//! The lines between two layers: each edge has a row of its own for the way from one column to another.

use super::canvas::Canvas;
use super::layers::{LayerItem, Layers};

/// A way from a column at the top to one at the bottom.
struct Way {
    from: usize,
    to: usize,
    dotted: bool,
    /// The way that must turn before this one does.
    after: Option<usize>,
}

impl Way {
    fn overlaps(&self, other: &Self) -> bool {
        self.from.min(self.to) <= other.from.max(other.to) && other.from.min(other.to) <= self.from.max(self.to)
    }
}

/// Draws the lines between a layer and the next, from row `top` on, and returns the first row of the next layer.
pub(super) fn between(canvas: &mut Canvas, layers: &Layers, upper: usize, top: usize) -> usize {
    let links: Vec<usize> = layers.rows[upper].iter().flat_map(|item| layers.below(*item)).collect();
    let mut straight = Vec::new();
    let mut ways = Vec::new();
    for link in &links {
        let (from, to, dotted) = (layers.bottom_port(*link), layers.top_port(*link), layers.links[*link].dotted);
        match from == to {
            true => straight.push((from, dotted)),
            false => ways.push(Way { from, to, dotted, after: None }),
        }
    }
    let free = links.iter().flat_map(|link| [layers.bottom_port(*link), layers.top_port(*link)]).max().unwrap_or(0) + 2;
    let (ways, turns) = turns(ways, free);
    let height = 2 + turns.iter().map(|turn| turn + 1).max().unwrap_or(0);
    for (column, dotted) in straight {
        (top..top + height).for_each(|row| canvas.down(column, row, dotted));
    }
    for (at, (way, turn)) in ways.iter().zip(&turns).enumerate() {
        let turn_row = top + 1 + turn;
        let begin = way.after.map_or(top, |before| top + 2 + turns[before]);
        let end = ways.iter().position(|next| next.after == Some(at)).map_or(top + height, |_| turn_row + 1);
        (begin..turn_row).for_each(|row| canvas.down(way.from, row, way.dotted));
        (turn_row + 1..end).for_each(|row| canvas.down(way.to, row, way.dotted));
        canvas.shift(way.from, way.to, turn_row, way.dotted);
    }
    for link in links {
        let of = &layers.links[link];
        if !of.up && matches!(layers.items[of.lower], LayerItem::Node(_)) {
            canvas.put(layers.top_port(link), top + height - 1, '▼');
        }
        if of.up && matches!(layers.items[of.upper], LayerItem::Node(_)) {
            canvas.put(layers.bottom_port(link), top, '▲');
        }
    }
    top + height
}

/// Finds a row for each way so that no two lie on each other. If ways turn in a circle, one makes a detour over a free
/// column and becomes two.
fn turns(mut ways: Vec<Way>, mut free: usize) -> (Vec<Way>, Vec<usize>) {
    let mut turns: Vec<Option<usize>> = vec![None; ways.len()];
    let mut row = 0;
    while turns.iter().any(Option::is_none) {
        // A way that comes down a column turns before another one enters it.
        let is_ready = |at: usize, turns: &[Option<usize>]| {
            ways.iter().enumerate().all(|(other, way)| {
                let frees = way.from == ways[at].to && way.after != Some(at);
                let first = other != at && (frees || ways[at].after == Some(other));
                !first || turns[other].is_some_and(|turn| turn < row)
            })
        };
        let ready: Vec<usize> = (0..ways.len()).filter(|at| turns[*at].is_none() && is_ready(*at, &turns)).collect();
        let mut taken: Vec<usize> = Vec::new();
        for at in ready {
            if !taken.iter().any(|other| ways[*other].overlaps(&ways[at])) {
                taken.push(at);
                turns[at] = Some(row);
            }
        }
        if taken.is_empty() {
            let Some(stuck) = turns.iter().position(Option::is_none) else { break };
            let (to, dotted) = (ways[stuck].to, ways[stuck].dotted);
            ways[stuck].to = free;
            ways.push(Way { from: free, to, dotted, after: Some(stuck) });
            turns.push(None);
            free += 2;
            continue;
        }
        row += 1;
    }
    (ways, turns.into_iter().map(Option::unwrap_or_default).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the cells that a way fills in a column, as rows from the first to the last.
    fn columns(ways: &[Way], turns: &[usize]) -> Vec<(usize, usize, usize)> {
        let last = turns.iter().max().map_or(0, |turn| turn + 1);
        let mut filled = Vec::new();
        for (at, way) in ways.iter().enumerate() {
            let end = ways.iter().position(|next| next.after == Some(at)).map_or(last, |next| turns[next]);
            // The second part of a detour begins in the column where the first ends.
            if way.after.is_none() {
                filled.push((way.from, 0, turns[at]));
            }
            filled.push((way.to, turns[at] + 1, end));
        }
        filled
    }

    #[test]
    fn no_two_ways_lie_on_each_other() {
        // Every way to join four columns with the same four, and a swap that needs a detour.
        for code in 0..256_usize {
            let to: Vec<usize> = (0..4).map(|at| (code >> (2 * at)) & 3).collect();
            let distinct = (0..4).all(|at| !to[..at].contains(&to[at]));
            let ways = to.iter().enumerate().filter(|(from, to)| from != *to);
            if !distinct {
                continue;
            }
            let ways = ways.map(|(from, to)| Way { from: 4 * from, to: 4 * to, dotted: false, after: None }).collect();
            let (ways, turns) = turns(ways, 14);
            let filled = columns(&ways, &turns);
            for (at, (column, begin, end)) in filled.iter().enumerate() {
                for (other, first, last) in &filled[at + 1..] {
                    assert!(column != other || end < first || last < begin, "{to:?}: column {column}");
                }
            }
            for at in 0..ways.len() {
                let same_row =
                    (at + 1..ways.len()).find(|other| turns[at] == turns[*other] && ways[at].overlaps(&ways[*other]));
                assert_eq!(same_row, None, "{to:?}");
            }
        }
    }
}
