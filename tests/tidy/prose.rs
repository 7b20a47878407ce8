//! The width of comments, and the count of those whose clauses have no noun for a subject.

use crate::house::Files;
use crate::rules::Violation;

/// Columns of a line, as in rustfmt.toml.
const WIDTH_MAX: usize = 120;

/// Words that begin a clause without a subject, at the start of a line or after a full stop, a colon or a semicolon.
const STARTS: &[&str] = &[
    "What", "Who", "Whoever", "Whatever", "Whether", "Of what", "Of whom", "Of which", "Where", "How long", "How many",
    "How far", "How much", "At which", "In which", "At what",
];

/// Words that stand for a subject or a negated verb anywhere in a line.
const INNER: &[&str] = &[
    "is no",
    "are no",
    "nobody",
    "what is",
    "what was",
    "what it",
    "what they",
    "who is",
    "who has",
    "what comes",
    "what a",
    "what the",
];

/// Returns the number of comment lines of the Rust files, and those with a headless clause.
pub(crate) fn headless(files: &Files) -> (usize, Vec<Violation>) {
    let (mut lines, mut found) = (0, Vec::new());
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".rs")) {
        for (number, comment) in comments(text) {
            lines += 1;
            if begins_headless(comment) || INNER.iter().any(|words| !places(&comment.to_lowercase(), words).is_empty())
            {
                found.push(Violation::of(path, number, format!("a clause without a noun as its subject: {comment}")));
            }
        }
    }
    (lines, found)
}

/// Returns the comment lines that are wider than the code may be. Code blocks and tables are as wide as they are.
pub(crate) fn wide(path: &str, text: &str) -> Vec<Violation> {
    let lines: Vec<&str> = text.lines().collect();
    let is_wide = |number: &usize| lines[number - 1].chars().count() > WIDTH_MAX;
    let numbers = comments(text).map(|(number, _)| number).filter(is_wide);
    numbers.map(|number| Violation::of(path, number, format!("a comment is wider than {WIDTH_MAX} columns"))).collect()
}

/// Returns the comment lines that are prose, with their numbers: no code blocks, headings and tables.
fn comments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            in_code = false;
            return None;
        };
        let comment = comment.strip_prefix(['/', '!']).unwrap_or(comment).trim();
        if comment.starts_with("```") {
            in_code = !in_code;
            return None;
        }
        let skipped = ["# ", "use ", "let ", "fn ", "|"].iter().any(|start| comment.starts_with(start));
        (!in_code && !comment.is_empty() && !skipped).then_some((number + 1, comment))
    })
}

/// Returns true if a clause of the line begins with one of [`STARTS`] and is not a question.
fn begins_headless(comment: &str) -> bool {
    let begins = |at: usize| at == 0 || [". ", ": ", "; "].iter().any(|end| comment[..at].ends_with(end));
    STARTS.iter().any(|words| {
        places(comment, words).into_iter().any(|at| {
            let clause = comment[at + words.len()..].split('.').next().unwrap_or("");
            begins(at) && !clause.contains('?')
        })
    })
}

/// Returns the places of whole words in a text.
pub(crate) fn places(text: &str, words: &str) -> Vec<usize> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let whole = |at: &usize| !text[..*at].ends_with(is_word) && !text[*at + words.len()..].starts_with(is_word);
    text.match_indices(words).map(|(at, _)| at).filter(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_comment_is_found_but_no_table_and_no_code() {
        let wide = "wide ".repeat(30);
        let text = format!("//! {wide}\n//! | {wide} |\n//! ```\n//! {wide}\n//! ```\nlet x = 1; // {wide}\n");
        assert_eq!(super::wide("src/a.rs", &text).iter().map(|found| found.line).collect::<Vec<_>>(), [1]);
    }

    fn lines(text: &str) -> (usize, Vec<usize>) {
        let files =
            Files::from([("src/a.rs".to_owned(), text.to_owned()), ("docs/a.md".to_owned(), "// Who".to_owned())]);
        let (lines, found) = headless(&files);
        (lines, found.iter().map(|violation| violation.line).collect())
    }

    #[test]
    fn headless_clauses_are_found() {
        let bad = [
            "//! What the machine shows of itself.",
            "    // Their errors are nobody's.",
            "/// It ends here: whoever. Whether it does.",
            "/// Returns the head; Where it stands.",
            "// It is no state.",
            "/// Tells what is due.",
            "// Of what it was made",
        ];
        for text in bad {
            assert_eq!(lines(text), (1, vec![1]), "{text}");
        }
        assert_eq!(lines(&bad.join("\n")), (7, (1..=7).collect()));
    }

    #[test]
    fn sentences_with_a_subject_are_not() {
        let fine = [
            "/// Returns the head checkpoint, where there is one.",
            "// What is this?",
            "// It is not a state. Anybody is.",
            "//! Whatsoever",
            "// The test says whether it holds.",
        ];
        assert_eq!(lines(&fine[..1].join("\n")), (1, vec![]));
        assert_eq!(lines(fine[3]), (1, vec![]));
        assert_eq!(lines(fine[4]), (1, vec![]));
        assert_eq!(lines(fine[2]), (1, vec![]));
        // A question may begin with a listed word, but the words of [`INNER`] are counted anywhere in a line.
        assert_eq!(lines("// Who asks?"), (1, vec![]));
        assert_eq!(lines(fine[1]), (1, vec![1]));
    }

    #[test]
    fn code_headings_and_tables_are_not_prose() {
        let text = "/// ```\n/// Who();\n/// ```\n// # What\n/// | Who |\nlet a = \"// Who\";\n//\n/// ```\nfn f() {}\n/// Who";
        assert_eq!(lines(text), (1, vec![10]));
    }
}
