//! Problems of a workflow file, with their places. Every problem is shown with its line and a caret.

use std::fmt;
use std::ops::Range;

/// A problem of a workflow file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowProblem {
    /// The number of the line, from 1.
    pub line: usize,
    /// The number of the character in the line, from 1.
    pub column: usize,
    /// The message.
    pub message: String,
    /// The next step for the user.
    pub hint: Option<String>,
    text: String,
    width: usize,
}

impl FlowProblem {
    pub(crate) fn new(source: &str, span: Range<usize>, message: impl Into<String>, hint: Option<String>) -> Self {
        let floor = |mut at: usize| {
            at = at.min(source.len());
            while !source.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let (start, end) = (floor(span.start), floor(span.end.max(span.start)));
        let line_start = source[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = source[start..].find('\n').map_or(source.len(), |at| start + at);
        debug_assert!(line_start <= start && start <= line_end, "the place of a problem is in its line");
        let width = source[start..end.clamp(start, line_end)].chars().count().max(1);
        Self {
            line: source[..start].matches('\n').count() + 1,
            column: source[line_start..start].chars().count() + 1,
            message: message.into(),
            hint,
            text: source[line_start..line_end].trim_end().replace('\t', " "),
            width,
        }
    }
}

/// All problems of a workflow file. The message shows each with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileError {
    /// The name of the file.
    pub file: String,
    /// The problems, in the order of the file; at least one.
    pub problems: Vec<FlowProblem>,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            let number = problem.line.to_string();
            let margin = " ".repeat(number.len());
            writeln!(f, "{}:{}:{}: {}", self.file, problem.line, problem.column, problem.message)?;
            writeln!(f, "{margin} |")?;
            writeln!(f, "{number} | {}", problem.text)?;
            write!(f, "{margin} | {}{}", " ".repeat(problem.column - 1), "^".repeat(problem.width))?;
            if let Some(hint) = &problem.hint {
                write!(f, "\n{margin} = {hint}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for FileError {}

/// Returns the known name that is nearest to an unknown one.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.map(|known| (distance(name, known), known));
    near.filter(|(far, _)| *far <= 1.max(name.chars().count() / 3)).min().map(|(_, known)| known)
}

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(200).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    let (mut before, mut last) = (row.clone(), None);
    for (i, x) in a.chars().take(200).enumerate() {
        let above = row.clone();
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let mut best = (above[j] + usize::from(x != *y)).min(row[j] + 1).min(above[j + 1] + 1);
            // Two letters that changed places are one error.
            if j > 0 && last == Some(*y) && x == b[j - 1] {
                best = best.min(before[j - 1] + 1);
            }
            row[j + 1] = best;
        }
        (before, last) = (above, Some(x));
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_shows_its_line_and_a_caret() {
        let source = "[nodes.a]\nafter = \"biuld\"\n";
        let problem =
            FlowProblem::new(source, 18..25, "node `biuld` does not exist", Some("did you mean `build`?".into()));
        let shown = FileError { file: "a.toml".into(), problems: vec![problem] }.to_string();
        let lines = [
            "a.toml:2:9: node `biuld` does not exist",
            "  |",
            "2 | after = \"biuld\"",
            "  |         ^^^^^^^",
            "  = did you mean `build`?",
        ];
        assert_eq!(shown, lines.join("\n"));
        // A place past the end is the end.
        assert_eq!(FlowProblem::new("a\n", 90..99, "", None).line, 2);
    }

    #[test]
    fn a_near_name_is_found() {
        assert_eq!(nearest("biuld", ["test", "build"].into_iter()), Some("build"));
        assert_eq!(nearest("deploy", ["test", "build"].into_iter()), None);
    }
}
