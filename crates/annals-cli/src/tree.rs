//! The tree of forks at the left of a log: which lane a checkpoint stands in, and where lanes part.
//!
//! Checkpoints come newest first, so a lane is open from a checkpoint down to its parent. Each has one parent: where
//! two lanes lead to the same one, the right lane ends there.

/// The lanes between two rows: each leads to the checkpoint it waits for.
#[derive(Debug)]
pub(crate) struct Lanes<I> {
    lanes: Vec<Option<I>>,
}

/// What is drawn at the left of one checkpoint.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Drawn {
    /// At the left of its line.
    pub(crate) node: String,
    /// At the left of further lines about it.
    pub(crate) below: String,
    /// A line of its own, if a lane ends here.
    pub(crate) merge: Option<String>,
}

impl<I: PartialEq> Lanes<I> {
    pub(crate) fn new() -> Self {
        Self { lanes: Vec::new() }
    }

    /// Draws the next checkpoint.
    pub(crate) fn row(&mut self, id: &I, parent: Option<I>, symbol: char) -> Drawn {
        let lane = self.lanes.iter().position(|waits| waits.as_ref() == Some(id)).unwrap_or_else(|| {
            self.lanes.push(None);
            self.lanes.len() - 1
        });
        let bar = |waits: &Option<I>| if waits.is_some() { '|' } else { ' ' };
        let mut marks: Vec<char> = self.lanes.iter().map(bar).collect();
        marks[lane] = symbol;
        let node = spaced(&marks);
        let twin = parent.as_ref().and_then(|parent| {
            self.lanes.iter().enumerate().position(|(at, waits)| at != lane && waits.as_ref() == Some(parent))
        });
        self.lanes[lane] = parent;
        let marks: Vec<char> = self.lanes.iter().map(bar).collect();
        let below = spaced(&marks);
        let merge = twin.map(|twin| self.merge(lane.min(twin), lane.max(twin)));
        while self.lanes.last().is_some_and(Option::is_none) {
            self.lanes.pop();
        }
        Drawn { node, below, merge }
    }

    /// Ends lane `right` in lane `left`; the lanes beyond it move up.
    fn merge(&mut self, left: usize, right: usize) -> String {
        let mut line = vec![' '; self.lanes.len() * 2];
        for (at, waits) in self.lanes.iter().enumerate().filter(|(_, waits)| waits.is_some()) {
            debug_assert!(waits.is_some());
            match at {
                at if at < right => line[at * 2] = '|',
                at => line[at * 2 - 1] = '/',
            }
        }
        for gap in line[left * 2 + 1..right * 2 - 1].iter_mut().filter(|gap| **gap == ' ') {
            *gap = '_';
        }
        self.lanes.remove(right);
        line.into_iter().collect::<String>().trim_end().to_owned()
    }

    /// Draws that the lanes go on below what is shown; nothing if none does.
    pub(crate) fn elided(&self) -> Option<String> {
        let marks: Vec<char> = self.lanes.iter().map(|waits| if waits.is_some() { '~' } else { ' ' }).collect();
        marks.contains(&'~').then(|| spaced(&marks).trim_end().to_owned())
    }
}

fn spaced(marks: &[char]) -> String {
    marks.iter().map(char::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(rows: &[(u32, Option<u32>)]) -> String {
        let mut lanes = Lanes::new();
        let mut text = String::new();
        for (at, (id, parent)) in rows.iter().enumerate() {
            let drawn = lanes.row(id, *parent, if at == 0 { '@' } else { 'o' });
            text += &format!("{}  {id}\n", drawn.node);
            text += &drawn.merge.map(|merge| merge + "\n").unwrap_or_default();
        }
        text + &lanes.elided().unwrap_or_default()
    }

    #[test]
    fn a_straight_run_is_one_lane() {
        assert_eq!(draw(&[(3, Some(2)), (2, Some(1)), (1, None)]), "@  3\no  2\no  1\n");
        assert_eq!(draw(&[(3, Some(2)), (2, Some(1))]), "@  3\no  2\n~");
    }

    #[test]
    fn a_fork_parts_where_its_parent_is() {
        let rows = [(6, Some(5)), (5, Some(2)), (4, Some(3)), (3, Some(2)), (2, Some(1)), (1, None)];
        assert_eq!(draw(&rows), "@  6\no  5\n| o  4\n| o  3\n|/\no  2\no  1\n");
    }

    #[test]
    fn lanes_cross_and_move_up() {
        // 9 and 8 and 7 are tips; 7 ends in the lane of 9 across that of 8; then 8 in its own.
        let rows = [(9, Some(1)), (8, Some(2)), (7, Some(1)), (6, Some(3)), (3, Some(1)), (2, Some(1)), (1, None)];
        let expected = "@  9\n| o  8\n| | o  7\n|_|/\n| | o  6\n| | o  3\n|_|/\n| o  2\n|/\no  1\n";
        assert_eq!(draw(&rows), expected);
        let shifted = [(9, Some(1)), (8, Some(5)), (7, Some(4)), (5, Some(1)), (4, Some(1)), (1, None)];
        assert_eq!(draw(&shifted), "@  9\n| o  8\n| | o  7\n| o |  5\n|/ /\n| o  4\n|/\no  1\n");
    }

    #[test]
    fn two_roots_leave_a_gap() {
        assert_eq!(draw(&[(4, Some(1)), (3, None), (2, Some(1)), (1, None)]), "@  4\n| o  3\n| o  2\n|/\no  1\n");
    }
}
