//! The tree of forks at the left of a log. Rows come newest first, each with at most one parent.
//!
//! Invariant: the text of every row begins in the same column.

use std::collections::HashSet;
use std::hash::Hash;

use renderdag::{Ancestor, GraphRowRenderer, Renderer};

/// One checkpoint of the log.
#[derive(Debug)]
pub(crate) struct TreeRow<I> {
    pub(crate) id: I,
    pub(crate) parent: Option<I>,
    /// The mark of the checkpoint in its lane.
    pub(crate) mark: char,
    /// The lines at its right, at least one.
    pub(crate) lines: Vec<String>,
}

/// Branches beside each other above which the tree is left out: its width and cost are those of all of them at each
/// row.
const LANES_MAX: usize = 40;

/// Draws the rows. `older` stands at the end of the lanes whose parents are not among the rows.
pub(crate) fn draw<I: Clone + Eq + Hash>(rows: &[TreeRow<I>], older: Option<&str>) -> Vec<String> {
    debug_assert!(rows.iter().all(|row| !row.lines.is_empty()), "a row has a line of text");
    if lanes(rows) > LANES_MAX {
        return plain(rows, older);
    }
    let width = widths(rows).into_iter().max().unwrap_or_default();
    let mut graph = GraphRowRenderer::new().output().with_min_row_height(0).build_ascii();
    let mut drawn = Vec::new();
    let mut push = |text: String| drawn.extend(text.lines().map(|line| line.trim_end().to_owned()));
    for row in rows {
        let parents = parents(row);
        let gap = width.saturating_sub(graph.width(Some(&row.id), Some(&parents))) as usize;
        let lines: Vec<String> = row.lines.iter().map(|line| format!("{:gap$}{line}", "")).collect();
        push(graph.next_row(row.id.clone(), parents, row.mark.into(), lines.join("\n")));
    }
    let Some(older) = older else { return drawn };
    let mut known: HashSet<&I> = rows.iter().map(|row| &row.id).collect();
    let missing: Vec<&I> =
        rows.iter().filter_map(|row| row.parent.as_ref()).filter(|parent| known.insert(parent)).collect();
    for (at, parent) in missing.iter().enumerate() {
        let text = if at + 1 == missing.len() { older } else { "" };
        push(graph.next_row((*parent).clone(), Vec::new(), "~".into(), text.to_owned()));
    }
    drawn
}

/// Returns the greatest number of branches that are open beside each other.
fn lanes<I: Eq + Hash>(rows: &[TreeRow<I>]) -> usize {
    let (mut open, mut seen) = (HashSet::new(), HashSet::new());
    let mut most = 0;
    for row in rows {
        debug_assert!(
            row.parent.as_ref().is_none_or(|parent| !seen.contains(parent)),
            "a parent comes after its children"
        );
        seen.insert(&row.id);
        open.remove(&row.id);
        open.extend(&row.parent);
        most = most.max(open.len());
    }
    most
}

/// Returns the rows without a tree, as it would be wider than a terminal.
fn plain<I>(rows: &[TreeRow<I>], older: Option<&str>) -> Vec<String> {
    let lines = rows.iter().flat_map(|row| {
        let (first, more) = row.lines.split_first().map_or(("", &[][..]), |(first, more)| (first.as_str(), more));
        let more = more.iter().map(|line| format!("   {line}"));
        std::iter::once(format!("{}  {first}", row.mark)).chain(more)
    });
    lines.chain(older.map(|older| format!("~  {older}"))).collect()
}

/// Returns the width of the lanes at each row.
fn widths<I: Clone + Eq>(rows: &[TreeRow<I>]) -> Vec<u64> {
    let mut graph = GraphRowRenderer::new().output().build_ascii();
    rows.iter()
        .map(|row| {
            let width = graph.width(Some(&row.id), Some(&parents(row)));
            graph.next_row(row.id.clone(), parents(row), row.mark.into(), String::new());
            width
        })
        .collect()
}

fn parents<I: Clone>(row: &TreeRow<I>) -> Vec<Ancestor<I>> {
    row.parent.clone().map(Ancestor::Parent).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(rows: &[(u32, Option<u32>)], older: Option<&str>) -> String {
        let row = |(at, (id, parent)): (usize, &(u32, Option<u32>))| TreeRow {
            id: *id,
            parent: *parent,
            mark: if at == 0 { '@' } else { 'o' },
            lines: vec![id.to_string()],
        };
        let rows: Vec<TreeRow<u32>> = rows.iter().enumerate().map(row).collect();
        draw(&rows, older).join("\n")
    }

    #[test]
    fn a_straight_run_is_one_lane() {
        assert_eq!(tree(&[(3, Some(2)), (2, Some(1)), (1, None)], Some("older")), "@  3\no  2\no  1");
        assert_eq!(tree(&[(3, Some(2)), (2, Some(1))], Some("older")), "@  3\no  2\n~  older");
        assert_eq!(tree(&[(3, Some(2)), (2, Some(1))], None), "@  3\no  2");
    }

    #[test]
    fn a_fork_ends_at_its_parent_and_the_texts_are_aligned() {
        let rows = [(6, Some(5)), (5, Some(2)), (4, Some(3)), (3, Some(2)), (2, Some(1)), (1, None)];
        assert_eq!(tree(&rows, None), "@    6\no    5\n| o  4\n| o  3\n|/\no    2\no    1");
        assert_eq!(tree(&rows[..3], Some("older")), "@    6\no    5\n| o  4\n~ |\n  ~  older");
    }

    #[test]
    fn a_lane_crosses_another_lane() {
        let rows = [(9, Some(1)), (8, Some(2)), (7, Some(1)), (6, Some(3)), (3, Some(1)), (2, Some(1)), (1, None)];
        let expected = "@      9\n| o    8\n| | o  7\n+---'\n| | o  6\n| | o  3\n+---'\n| o    2\n|/\no      1";
        assert_eq!(tree(&rows, None), expected);
    }

    #[test]
    fn more_branches_than_fit_are_rows_without_a_tree() {
        let rows: Vec<(u32, Option<u32>)> = (2..60).rev().map(|id| (id, Some(id + 100))).collect();
        let drawn = tree(&rows, Some("older"));
        assert!(drawn.starts_with("@  59\no  58\n") && drawn.ends_with("o  2\n~  older"), "{drawn}");
        assert!(tree(&rows[..40], None).contains('|'));
    }

    #[test]
    fn a_row_with_several_lines_shares_them_with_the_lanes() {
        let row = |id, parent, lines: &[&str]| TreeRow {
            id,
            parent,
            mark: 'o',
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        };
        let rows = [row(3, Some(1), &["3", "more"]), row(2, Some(1), &["2", "more"]), row(1, None, &["1"])];
        assert_eq!(draw(&rows, None).join("\n"), "o    3\n|    more\n| o  2\n|/   more\no    1");
    }
}
