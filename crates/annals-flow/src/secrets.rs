//! The secrets of a workflow, which are never stored: values that commands and requests get by name, and texts that a
//! pattern of `redact` describes.
//!
//! Invariant: whatever a node returns, its errors included, has passed [`Secrets::redacted`]. *Absent:* secrets that a
//! command prints in another encoding.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::limits::REDACT_CHARS_MIN;
use crate::process::{CommandError, CommandOutput};

/// The text in the place of a secret.
const REDACTED: &str = "***";

type Lookup = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The source of the values: the graph holds it, and [`Flow::secrets`](crate::Flow::secrets) sets it.
#[derive(Default)]
pub(crate) struct SecretSource(OnceLock<Lookup>);

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretSource")
    }
}

/// A secret without a value.
#[derive(Debug, thiserror::Error)]
#[error("secret `{0}` has no value")]
pub(crate) struct MissingSecret(pub(crate) String);

/// A pattern of secrets: texts, and between two of them the longest row of characters of a key, one at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RedactPattern(Vec<String>);

impl RedactPattern {
    /// Reads a text in which `*` stands for letters, digits and `-_.=+/~`. `None` if it would find too much: fewer than
    /// three characters before the first `*`, or two `*` in a row.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let parts: Vec<String> = text.split('*').map(str::to_owned).collect();
        let (first, rest) = parts.split_first()?;
        let is_last_empty = |at: usize| at + 1 == rest.len();
        let is_whole = rest.iter().enumerate().all(|(at, part)| !part.is_empty() || is_last_empty(at));
        let fits = first.chars().count() >= REDACT_CHARS_MIN && is_whole && !text.contains(['\n', '\r', '\0']);
        fits.then_some(Self(parts))
    }

    /// Returns the end of the first match that begins at the start of a text.
    fn end_in(parts: &[String], text: &str, is_first: bool) -> Option<usize> {
        let Some((part, rest)) = parts.split_first() else { return Some(0) };
        if is_first {
            let after = text.strip_prefix(part.as_str())?;
            return Some(part.len() + Self::end_in(rest, after, false)?);
        }
        let is_of_key = |c: char| c.is_ascii_alphanumeric() || "-_.=+/~".contains(c);
        // A row of such characters has one byte for each.
        let row = text.chars().take_while(|c| is_of_key(*c)).count();
        (1..=row).rev().find_map(|at| {
            let after = text[at..].strip_prefix(part.as_str())?;
            Some(at + part.len() + Self::end_in(rest, after, false)?)
        })
    }

    fn redacted(&self, text: String) -> String {
        let Some(first) = self.0.first() else { return text };
        let (mut shown, mut at) = (String::new(), 0);
        while let Some(found) = text[at..].find(first.as_str()).map(|found| at + found) {
            match Self::end_in(&self.0, &text[found..], true) {
                Some(end) => {
                    shown.push_str(&text[at..found]);
                    shown.push_str(REDACTED);
                    at = found + end;
                }
                None => {
                    let next = found + first.chars().next().map_or(1, char::len_utf8);
                    shown.push_str(&text[at..next]);
                    at = next;
                }
            }
        }
        if at == 0 {
            return text;
        }
        shown.push_str(&text[at..]);
        shown
    }
}

/// The names and values of the secrets of a file, and its patterns.
#[derive(Clone, Default)]
pub(crate) struct Secrets {
    values: Vec<(String, String)>,
    patterns: Arc<[RedactPattern]>,
}

impl SecretSource {
    /// Sets the source. A second call changes nothing and returns false.
    pub(crate) fn set(&self, lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> bool {
        self.0.set(Box::new(lookup)).is_ok()
    }

    pub(crate) fn read(&self, names: &[String]) -> Result<Secrets, MissingSecret> {
        let value = |name: &String| {
            let found = self.0.get().and_then(|lookup| lookup(name)).filter(|value| !value.is_empty());
            found.map(|value| (name.clone(), value)).ok_or_else(|| MissingSecret(name.clone()))
        };
        Ok(Secrets { values: names.iter().map(value).collect::<Result<_, _>>()?, patterns: Arc::default() })
    }
}

impl Secrets {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(String, String)> {
        self.values.iter()
    }

    /// Adds the patterns of secrets without a name.
    pub(crate) fn with_patterns(self, patterns: &Arc<[RedactPattern]>) -> Self {
        Self { patterns: Arc::clone(patterns), ..self }
    }

    /// Returns a text with a mark in the place of each secret. Of secrets that contain each other the longer ones are
    /// replaced first.
    pub(crate) fn redacted(&self, text: String) -> String {
        let mut values: Vec<&String> = self.values.iter().map(|(_, value)| value).collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        let text = values
            .into_iter()
            .fold(text, |text, value| if text.contains(value) { text.replace(value, REDACTED) } else { text });
        self.patterns.iter().fold(text, |text, pattern| pattern.redacted(text))
    }

    /// Returns a text of whole lines without the rest of a secret of several lines at its start or the beginning of one
    /// at its end.
    pub(crate) fn without_halves<'t>(&self, text: &'t str, at_start: bool, at_end: bool) -> &'t str {
        let mut text = text;
        for (_, value) in self.values.iter().filter(|(_, value)| value.contains(['\n', '\r'])) {
            let inner = || value.char_indices().map(|(at, _)| at).filter(|at| *at > 0);
            if let Some(rest) = inner().map(|at| &value[at..]).find(|rest| at_start && text.starts_with(rest)) {
                text = &text[rest.len()..];
            }
            if let Some(begin) = inner().rev().map(|at| &value[..at]).find(|begin| at_end && text.ends_with(begin)) {
                text = &text[..text.len() - begin.len()];
            }
        }
        text
    }

    /// Returns bytes alike. Bytes that are not UTF-8 are refused before they are stored.
    pub(crate) fn redacted_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        match String::from_utf8(bytes) {
            Ok(text) => self.redacted(text).into_bytes(),
            Err(error) => error.into_bytes(),
        }
    }

    pub(crate) fn redacted_output(
        &self,
        ended: Result<CommandOutput, CommandError>,
    ) -> Result<CommandOutput, CommandError> {
        match ended {
            Ok(CommandOutput { status, stdout, stderr }) => {
                let (stdout, stderr) = (self.redacted_bytes(stdout), self.redacted(self.uncut(stderr)));
                Ok(CommandOutput { status, stdout, stderr })
            }
            Err(CommandError::Status { program, status, stderr }) => {
                Err(CommandError::Status { program, status, stderr: self.redacted(self.uncut(stderr)) })
            }
            Err(error) => Err(error),
        }
    }

    /// Removes from the end of stderr a beginning that may be the rest of a secret.
    fn uncut(&self, stderr: String) -> String {
        let longest = self.values.iter().map(|(_, value)| value.len()).max().unwrap_or(0);
        let has_patterns = !self.patterns.is_empty();
        let margin = if has_patterns { longest.max(crate::limits::REDACT_BYTES_MAX) } else { longest };
        // The text was trimmed, and may have a colon before it.
        if margin == 0 || stderr.len() + margin < crate::limits::STDERR_BYTES_MAX {
            return stderr;
        }
        // The length of a text of a pattern is not known, but it stands in one line.
        let line = if has_patterns { stderr.find(['\n', '\r']).map_or(stderr.len(), |at| at + 1) } else { 0 };
        let at = (longest.max(line)..stderr.len()).find(|at| stderr.is_char_boundary(*at)).unwrap_or(stderr.len());
        format!("..{}", &stderr[at..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_redacted_also_in_a_longer_one_and_at_a_cut() {
        let source = SecretSource::default();
        let names = ["A".to_owned(), "B".to_owned()];
        assert!(source.read(&names).is_err());
        assert!(source.set(|name| Some(if name == "A" { "key".into() } else { "key-long".into() })));
        let secrets = source.read(&names).unwrap_or_default();
        assert_eq!(secrets.redacted("a key, a key-long".into()), "a ***, a ***");
        let stderr = format!("y-long{}", "x".repeat(crate::limits::STDERR_BYTES_MAX - 6));
        let shown = secrets.redacted(secrets.uncut(stderr));
        assert!(shown.starts_with("..xx") && !shown.contains("long"), "{}", &shown[..20]);
        let patterns: Arc<[RedactPattern]> = RedactPattern::parse("ghp_*").into_iter().collect();
        let stderr = format!("abc\n{}", "x".repeat(crate::limits::STDERR_BYTES_MAX - 4));
        let shown = Secrets::default().with_patterns(&patterns).uncut(stderr);
        assert!(shown.starts_with("..xx"), "the rest of a token may be in the first line: {}", &shown[..8]);
        let source = SecretSource::default();
        source.set(|_| Some("one\ntwo\n".to_owned()));
        let lines = source.read(&["KEY".to_owned()]).unwrap_or_default();
        assert_eq!(lines.without_halves("two\nthree\none\n", true, true), "three\n");
    }

    #[test]
    fn a_pattern_redacts_the_longest_row_and_finds_not_too_much() {
        let redacted = |pattern: &str, text: &str| {
            let patterns: Arc<[RedactPattern]> = RedactPattern::parse(pattern).into_iter().collect();
            Secrets::default().with_patterns(&patterns).redacted(text.to_owned())
        };
        for (pattern, text, shown) in [
            ("ghp_*", "a ghp_12ab, ghp_ and ghp_x\n", "a ***, ghp_ and ***\n"),
            ("Bearer *", "Bearer a.b=c\"", "***\""),
            ("key=*;", "key=ab;c key=ab c", "***c key=ab c"),
            ("anna@*.example", "to anna@mail.example.", "to ***."),
            ("Anna Gut", "Anna Gut, Änna Gut", "***, Änna Gut"),
            ("äää*", "ääääx", "ä***"),
        ] {
            assert_eq!(redacted(pattern, text), shown, "{pattern}");
        }
        for wrong in ["", "*", "ab*", "key**", "key*\n"] {
            assert_eq!(RedactPattern::parse(wrong), None, "{wrong:?}");
        }
    }
}
