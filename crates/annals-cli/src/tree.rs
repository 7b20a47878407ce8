//! The tree of forks at the left of a log. Rows come newest first, each with at most one parent.
//!
//! Invariant: the texts of a page begin in the same column.

use std::collections::HashMap;
use std::hash::Hash;

use renderdag::{Ancestor, AsciiRenderer, GraphRowRenderer, Renderer};

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

/// A tree of which pages are drawn one after the other.
pub(crate) struct LogTree<I: Clone + Eq> {
    graph: AsciiRenderer<I, GraphRowRenderer<I>>,
    /// The same tree without texts, one page ahead: the width of a page is known before its first row is drawn.
    ahead: AsciiRenderer<I, GraphRowRenderer<I>>,
    /// The cells of the lanes.
    width: u64,
    /// The parents that have not come yet, with their place among all.
    open: HashMap<I, usize>,
    /// The number of parents so far.
    parents: usize,
    /// True after [`LANES_MAX`] is exceeded.
    is_plain: bool,
}

impl<I: Clone + Eq + Hash> LogTree<I> {
    pub(crate) fn new() -> Self {
        let graph = || GraphRowRenderer::new().output().with_min_row_height(0).build_ascii();
        let (graph, ahead) = (graph(), GraphRowRenderer::new().output().build_ascii());
        Self { graph, ahead, width: 0, open: HashMap::new(), parents: 0, is_plain: false }
    }

    /// Draws the next rows. The texts of a page begin in the same column, or further to the right than those before it
    /// if it has more lanes.
    pub(crate) fn page(&mut self, rows: &[TreeRow<I>]) -> Vec<String> {
        debug_assert!(rows.iter().all(|row| !row.lines.is_empty()), "a row has a line of text");
        self.is_plain |= self.lanes(rows) > LANES_MAX;
        if self.is_plain {
            return plain(rows);
        }
        for row in rows {
            self.width = self.width.max(self.ahead.width(Some(&row.id), Some(&parents(row))));
            self.ahead.next_row(row.id.clone(), parents(row), row.mark.into(), String::new());
        }
        let mut drawn = Vec::new();
        for row in rows {
            let parents = parents(row);
            let gap = self.width.saturating_sub(self.graph.width(Some(&row.id), Some(&parents))) as usize;
            let lines: Vec<String> = row.lines.iter().map(|line| format!("{:gap$}{line}", "")).collect();
            let text = self.graph.next_row(row.id.clone(), parents, row.mark.into(), lines.join("\n"));
            drawn.extend(text.lines().map(|line| line.trim_end().to_owned()));
        }
        drawn
    }

    /// Draws the end, with a text at the lanes whose parents have not come.
    pub(crate) fn end(&mut self, older: &str) -> Vec<String> {
        if self.is_plain {
            return vec![format!("~  {older}")];
        }
        let mut missing: Vec<(I, usize)> = self.open.drain().collect();
        missing.sort_unstable_by_key(|(_, place)| *place);
        let mut drawn = Vec::new();
        for (at, (parent, _)) in missing.iter().enumerate() {
            let text = if at + 1 == missing.len() { older } else { "" };
            let text = self.graph.next_row(parent.clone(), Vec::new(), "~".into(), text.to_owned());
            drawn.extend(text.lines().map(|line| line.trim_end().to_owned()));
        }
        drawn
    }

    /// Returns the greatest number of branches that are open beside each other on a page.
    fn lanes(&mut self, rows: &[TreeRow<I>]) -> usize {
        let mut most = 0;
        for row in rows {
            self.open.remove(&row.id);
            if let Some(parent) = &row.parent {
                self.open.entry(parent.clone()).or_insert(self.parents);
                self.parents += 1;
            }
            most = most.max(self.open.len());
        }
        most
    }
}

/// Returns the rows without a tree, as it would be wider than a terminal.
fn plain<I>(rows: &[TreeRow<I>]) -> Vec<String> {
    let lines = rows.iter().flat_map(|row| {
        let (first, more) = row.lines.split_first().map_or(("", &[][..]), |(first, more)| (first.as_str(), more));
        let more = more.iter().map(|line| format!("   {line}"));
        std::iter::once(format!("{}  {first}", row.mark)).chain(more)
    });
    lines.collect()
}

fn parents<I: Clone>(row: &TreeRow<I>) -> Vec<Ancestor<I>> {
    row.parent.clone().map(Ancestor::Parent).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(rows: &[TreeRow<u32>], older: Option<&str>, page: usize) -> String {
        let mut tree = LogTree::new();
        let mut drawn: Vec<String> = rows.chunks(page).flat_map(|rows| tree.page(rows)).collect();
        drawn.extend(older.map(|older| tree.end(older)).unwrap_or_default());
        drawn.join("\n")
    }

    fn tree(rows: &[(u32, Option<u32>)], older: Option<&str>) -> String {
        paged(rows, older, rows.len())
    }

    fn paged(rows: &[(u32, Option<u32>)], older: Option<&str>, page: usize) -> String {
        let row = |(at, (id, parent)): (usize, &(u32, Option<u32>))| TreeRow {
            id: *id,
            parent: *parent,
            mark: if at == 0 { '@' } else { 'o' },
            lines: vec![id.to_string()],
        };
        let rows: Vec<TreeRow<u32>> = rows.iter().enumerate().map(row).collect();
        draw(&rows, older, page)
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
    fn pages_go_on_with_the_lanes_of_those_before() {
        let rows = [(6, Some(5)), (5, Some(2)), (4, Some(3)), (3, Some(2)), (2, Some(1)), (1, None)];
        // The texts of the second page leave room for the lane that begins there.
        assert_eq!(paged(&rows, None, 2), "@  6\no  5\n| o  4\n| o  3\n|/\no    2\no    1");
        assert_eq!(paged(&rows[..3], Some("older"), 1), paged(&rows[..3], Some("older"), 2));
        assert_eq!(paged(&rows, None, 3), tree(&rows, None));
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
        assert_eq!(draw(&rows, None, 3), "o    3\n|    more\n| o  2\n|/   more\no    1");
    }
}
