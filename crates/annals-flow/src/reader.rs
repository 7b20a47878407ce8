//! Reads values of a workflow file, and collects problems. A value with a problem is left out, so that one pass finds
//! all.

use std::ops::Range;
use std::time::Duration;

use annals_graph::annals::base::Value;

use crate::expression::Expression;
use crate::limits::{DURATION_MAX, NAME_BYTES_MAX};
use crate::problem::{FlowProblem, nearest};
use crate::spec::Filled;
use crate::tree::{FileMember, FileValue, ValueKind};

pub(crate) struct FileReader<'a> {
    pub(crate) source: &'a str,
    pub(crate) problems: Vec<FlowProblem>,
}

impl FileReader<'_> {
    pub(crate) fn problem(&mut self, span: &Range<usize>, message: impl Into<String>, hint: Option<String>) {
        self.problems.push(FlowProblem::new(self.source, span.clone(), message, hint));
    }

    fn expected(&mut self, value: &FileValue, what: &str) {
        let found = value.kind_name();
        self.problem(&value.span, format!("expected {what}, found {found}"), None);
    }

    /// Returns the members of a table whose keys are known.
    pub(crate) fn known<'v>(&mut self, value: &'v FileValue, known: &[&str]) -> Vec<&'v FileMember> {
        let members = self.table(value);
        for member in members.iter().filter(|member| !known.contains(&member.key.as_str())) {
            let hint = match nearest(&member.key, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known keys: {}", known.join(", ")),
            };
            self.problem(&member.span, format!("unknown key `{}`", member.key), Some(hint));
        }
        members.iter().filter(|member| known.contains(&member.key.as_str())).collect()
    }

    pub(crate) fn table<'v>(&mut self, value: &'v FileValue) -> &'v [FileMember] {
        match &value.kind {
            ValueKind::Table(members) => members,
            _ => {
                self.expected(value, "a table");
                &[]
            }
        }
    }

    pub(crate) fn text(&mut self, value: &FileValue) -> Option<String> {
        match &value.kind {
            ValueKind::Text(text) if !text.contains('\0') => Some(text.clone()),
            ValueKind::Text(_) => {
                self.problem(&value.span, "the text has a zero byte", None);
                None
            }
            _ => {
                self.expected(value, "a text");
                None
            }
        }
    }

    /// Reads a name of a node or channel.
    pub(crate) fn name(&mut self, name: &str, span: &Range<usize>) -> bool {
        let fits = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let is_reserved = name == "start" || name == "end" || name.starts_with("__");
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(fits) || is_reserved {
            let hint = format!("letters, digits, `_` and `-`, at most {NAME_BYTES_MAX} bytes, not `start` or `end`");
            self.problem(span, format!("`{name}` cannot be a name"), Some(hint));
            return false;
        }
        true
    }

    pub(crate) fn int(&mut self, value: &FileValue, allowed: std::ops::RangeInclusive<i64>) -> Option<i64> {
        match &value.kind {
            ValueKind::Int(n) if allowed.contains(n) => Some(*n),
            _ => {
                self.expected(value, &format!("an integer from {} to {}", allowed.start(), allowed.end()));
                None
            }
        }
    }

    /// Reads one of several words.
    pub(crate) fn word<T: Copy>(&mut self, value: &FileValue, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(value)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, of)| *of);
        if found.is_none() {
            let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let near = nearest(&text, all.iter().copied());
            let hint =
                near.map_or_else(|| format!("one of {}", all.join(", ")), |near| format!("did you mean `{near}`?"));
            self.problem(&value.span, format!("`{text}` is not known here"), Some(hint));
        }
        found
    }

    /// Reads a text or a list of texts, with the place of each.
    pub(crate) fn texts(&mut self, value: &FileValue) -> Vec<(String, Range<usize>)> {
        let items = match &value.kind {
            ValueKind::List(items) => items.as_slice(),
            _ => std::slice::from_ref(value),
        };
        items.iter().filter_map(|item| Some((self.text(item)?, item.span.clone()))).collect()
    }

    /// Reads a duration: a number with `ms`, `s`, `m`, `h` or `d`.
    pub(crate) fn duration(&mut self, value: &FileValue) -> Option<Duration> {
        let text = self.text(value)?;
        let parsed = duration(&text);
        if parsed.is_none() {
            let hint = "a number with ms, s, m, h or d, at most 366 days, as in \"500ms\" or \"1.5h\"";
            self.problem(&value.span, format!("`{text}` is not a duration"), Some(hint.into()));
        }
        parsed
    }

    /// Reads an expression.
    pub(crate) fn expression(&mut self, value: &FileValue) -> Option<Expression> {
        let text = self.text(value)?;
        self.parsed(&text, value, 0)
    }

    /// Parses an expression that begins at a byte of a text.
    fn parsed(&mut self, text: &str, value: &FileValue, from: usize) -> Option<Expression> {
        match Expression::parse(&text[from..]) {
            Ok(parsed) => Some(parsed),
            Err(error) => {
                // In a text without escapes the place is exact; otherwise it is the whole text.
                let raw = &self.source[value.span.clone()];
                let is_plain = raw.len() == text.len() + 2 && raw[1..].starts_with(text);
                let at = value.span.start + 1 + from + error.at;
                let span = if is_plain { at..at + 1 } else { value.span.clone() };
                self.problem(&span, error.message, Some("docs/flows.md describes expressions".into()));
                None
            }
        }
    }

    /// Reads a value; a text that begins with `=` is an expression, one that begins with `==` a text.
    pub(crate) fn filled(&mut self, value: &FileValue) -> Option<Filled> {
        match &value.kind {
            ValueKind::Text(text) if text.starts_with("==") => Some(Filled::Value(Value::from(&text[1..]))),
            ValueKind::Text(text) if text.starts_with('=') => self.parsed(text, value, 1).map(Filled::Expression),
            _ => Some(Filled::Value(value.to_value())),
        }
    }
}

fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit());
    let seconds = digits.parse::<f64>().ok().filter(|_| is_number)? * unit;
    Duration::try_from_secs_f64(seconds).ok().filter(|duration| *duration <= DURATION_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_a_limit() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("1.5h"), Some(Duration::from_secs(5_400)));
        for wrong in ["", "5", "s", "-1s", "1 s", "367d", "1e400s", "infs", "nans", "1w"] {
            assert_eq!(duration(wrong), None, "{wrong:?}");
        }
    }
}
