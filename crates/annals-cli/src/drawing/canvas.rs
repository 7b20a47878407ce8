//! A grid of characters on which lines join.

/// Lines leave a cell to these sides.
const UP: u8 = 1;
const DOWN: u8 = 2;
const LEFT: u8 = 4;
const RIGHT: u8 = 8;

/// One cell.
#[derive(Clone, Copy, Default)]
struct CanvasCell {
    sides: u8,
    dotted: bool,
    /// A character that covers the lines.
    over: Option<char>,
}

impl CanvasCell {
    fn char(self) -> char {
        match (self.over, self.sides, self.dotted) {
            (Some(over), ..) => over,
            (_, 0, _) => ' ',
            (_, sides, true) if sides & (LEFT | RIGHT) == 0 => '┊',
            (_, sides, false) if sides & (LEFT | RIGHT) == 0 => '│',
            (_, sides, true) if sides & (UP | DOWN) == 0 => '┄',
            (_, sides, false) if sides & (UP | DOWN) == 0 => '─',
            (_, sides, _) if sides == DOWN | RIGHT => '┌',
            (_, sides, _) if sides == DOWN | LEFT => '┐',
            (_, sides, _) if sides == UP | RIGHT => '└',
            (_, sides, _) if sides == UP | LEFT => '┘',
            _ => '┼',
        }
    }
}

/// The grid. It grows as it is written to.
#[derive(Default)]
pub(super) struct Canvas {
    rows: Vec<Vec<CanvasCell>>,
}

impl Canvas {
    fn cell(&mut self, column: usize, row: usize) -> &mut CanvasCell {
        if self.rows.len() <= row {
            self.rows.resize_with(row + 1, Vec::new);
        }
        let cells = &mut self.rows[row];
        if cells.len() <= column {
            cells.resize(column + 1, CanvasCell::default());
        }
        &mut cells[column]
    }

    fn line(&mut self, column: usize, row: usize, sides: u8, dotted: bool) {
        let cell = self.cell(column, row);
        cell.sides |= sides;
        cell.dotted = dotted;
    }

    /// Draws a line from the upper to the lower side of a cell.
    pub(super) fn down(&mut self, column: usize, row: usize, dotted: bool) {
        self.line(column, row, UP | DOWN, dotted);
    }

    /// Draws a line in a row that enters from above at one column and leaves below at another.
    pub(super) fn shift(&mut self, from: usize, to: usize, row: usize, dotted: bool) {
        debug_assert_ne!(from, to);
        let (left, right) = (from.min(to), from.max(to));
        for column in left + 1..right {
            self.line(column, row, LEFT | RIGHT, dotted);
        }
        let (begin, end) = if from < to { (RIGHT, LEFT) } else { (LEFT, RIGHT) };
        self.line(from, row, UP | begin, dotted);
        self.line(to, row, DOWN | end, dotted);
    }

    /// Puts a character over the lines of a cell.
    pub(super) fn put(&mut self, column: usize, row: usize, over: char) {
        self.cell(column, row).over = Some(over);
    }

    /// Writes a text.
    pub(super) fn text(&mut self, column: usize, row: usize, text: &str) {
        text.chars().enumerate().for_each(|(at, c)| self.put(column + at, row, c));
    }

    /// Draws lines of text in a box.
    pub(super) fn frame(&mut self, left: usize, top: usize, width: usize, lines: &[String]) {
        let (right, bottom) = (left + width - 1, top + lines.len() + 1);
        let border = "─".repeat(width - 2);
        self.text(left, top, &format!("┌{border}┐"));
        self.text(left, bottom, &format!("└{border}┘"));
        for (at, line) in lines.iter().enumerate() {
            self.put(left, top + 1 + at, '│');
            self.put(right, top + 1 + at, '│');
            debug_assert!(line.chars().count() + 2 <= width);
            let free = width - 2 - line.chars().count();
            self.text(left + 1 + free / 2, top + 1 + at, line);
        }
    }

    /// Returns the rows, without blanks at their ends.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for cells in &self.rows {
            let row: String = cells.iter().map(|cell| cell.char()).collect();
            text.push_str(row.trim_end());
            text.push('\n');
        }
        text
    }
}
