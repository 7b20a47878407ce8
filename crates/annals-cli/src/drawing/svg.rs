//! The drawing of a terminal as SVG: lines of the grid become strokes, everything else text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The size of a cell in pixels.
const CELL: (usize, usize) = (8, 16);

/// The colours follow the reader.
const STYLE: &str = "text{font:13px ui-monospace,monospace;fill:#222}path{fill:none;stroke:#666}\
                     @media(prefers-color-scheme:dark){text{fill:#ddd}path{stroke:#999}}";

/// A stroke from a place to another on its row or column, in half cells.
type Strokes = BTreeMap<(usize, bool), Vec<(usize, usize)>>;

/// Returns the sides to which the line of a character leads: up, down, left, right; and whether it is dotted.
fn sides(c: char) -> Option<([bool; 4], bool)> {
    let of = |sides: &str, dotted| (['u', 'd', 'l', 'r'].map(|side| sides.contains(side)), dotted);
    Some(match c {
        '│' => of("ud", false),
        '┊' => of("ud", true),
        '─' => of("lr", false),
        '┄' => of("lr", true),
        '┌' => of("dr", false),
        '┐' => of("dl", false),
        '└' => of("ur", false),
        '┘' => of("ul", false),
        '┬' => of("dlr", false),
        '┴' => of("ulr", false),
        '├' => of("udr", false),
        '┤' => of("udl", false),
        '┼' => of("udlr", false),
        _ => return None,
    })
}

/// Adds a stroke; one that begins where the last one ends makes that longer.
fn add(strokes: &mut Strokes, line: usize, dotted: bool, from: usize, to: usize) {
    let all = strokes.entry((line, dotted)).or_default();
    match all.last_mut() {
        Some(last) if last.1 == from => last.1 = to,
        _ => all.push((from, to)),
    }
}

/// Returns a drawing of lines of text as an SVG document.
pub(super) fn of_text(text: &str, title: &str) -> String {
    let (mut across, mut down, mut texts) = (Strokes::new(), Strokes::new(), String::new());
    let columns = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    for (row, line) in text.lines().enumerate() {
        let mut words: Vec<(usize, String)> = Vec::new();
        for (column, c) in line.chars().enumerate() {
            if let Some(([up, below, left, right], dotted)) = sides(c) {
                let (x, y) = (2 * column, 2 * row);
                if left || right {
                    add(&mut across, row, dotted, x + usize::from(!left), x + 1 + usize::from(right));
                }
                if up || below {
                    add(&mut down, column, dotted, y + usize::from(!up), y + 1 + usize::from(below));
                }
            } else if c != ' ' {
                match words.last_mut().filter(|(at, word)| at + word.chars().count() == column) {
                    Some((_, word)) => word.push(c),
                    None => words.push((column, c.to_string())),
                }
            }
        }
        for (column, word) in words {
            let (x, y, length) = (column * CELL.0, row * CELL.1 + 12, word.chars().count() * CELL.0);
            let word = escaped(&word);
            _ = writeln!(texts, "<text x=\"{x}\" y=\"{y}\" textLength=\"{length}\">{word}</text>");
        }
    }
    let (width, height) = (columns * CELL.0, text.lines().count() * CELL.1);
    let title = escaped(title);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\">\n<title>{title}</title>\n<style>{STYLE}</style>\n"
    );
    for dotted in [false, true] {
        let mut path = String::new();
        let of = |strokes: &Strokes| -> Vec<(usize, usize, usize)> {
            let own = strokes.iter().filter(|((_, is_dotted), _)| *is_dotted == dotted);
            own.flat_map(|((line, _), all)| all.iter().map(|(from, to)| (*line, *from, *to))).collect()
        };
        for (row, from, to) in of(&across) {
            let y = row * CELL.1 + CELL.1 / 2;
            _ = write!(path, "M{} {y}H{}", from * CELL.0 / 2, to * CELL.0 / 2);
        }
        for (column, from, to) in of(&down) {
            let x = column * CELL.0 + CELL.0 / 2;
            _ = write!(path, "M{x} {}V{}", from * CELL.1 / 2, to * CELL.1 / 2);
        }
        if !path.is_empty() {
            let dashes = if dotted { " stroke-dasharray=\"3 3\"" } else { "" };
            _ = writeln!(svg, "<path d=\"{path}\"{dashes}/>");
        }
    }
    debug_assert!(!texts.contains("<script"), "names are escaped");
    svg + &texts + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_strokes_and_names_are_text() {
        let svg = of_text("┌───┐\n│a<b│\n└─┬─┘\n  ┊\n", "t & u");
        assert!(svg.contains("<title>t &amp; u</title>") && svg.contains("viewBox=\"0 0 40 64\""), "{svg}");
        assert!(svg.contains(">a&lt;b</text>") && svg.contains("textLength=\"24\""), "{svg}");
        // The upper and the lower side of the box are one stroke each, and so are its left and right sides.
        assert!(svg.contains("M4 8H36M4 40H36"), "{svg}");
        assert!(svg.contains("M4 8V40") && svg.contains("M36 8V40"), "{svg}");
        assert!(svg.contains("M20 48V64\" stroke-dasharray"), "{svg}");
    }
}
