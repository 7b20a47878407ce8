//! Filters as words of the search field: `project:home status:failed since:1d` of threads, `role:ai node:agent` of
//! messages, and words of a title or of a message.
//!
//! Invariant: the words of [`ThreadFilter::text`] read the same filter again.

use annals::base::Timestamp;
use annals::store::{SearchQuery, StatusKind, ThreadQuery};
use annals_runs::{status_name, status_named};
use annals_view::words::shortened;

use crate::address::encode;
use crate::failure::Refusal;
use crate::request::Fields;

/// The names of filters. Another name before a colon is a part of a word.
const NAMES: [&str; 10] = ["project", "label", "graph", "status", "since", "is", "thread", "role", "node", "channel"];
/// Those of them that messages have; [`PRESENT`] is one of them too, and both have `since`.
const OF_MESSAGES: [&str; 4] = ["thread", "role", "node", "channel"];
/// The words after `is:` of threads.
const MARKS: [&str; 2] = ["archived", "half"];
/// The word after `is:` of messages in the present state.
pub(crate) const PRESENT: &str = "present";

/// A filter of threads or messages: the words of the search field, and the fields of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadFilter {
    /// Pairs of a name and a value, one for each name.
    pairs: Vec<(&'static str, String)>,
    /// Words that a title or a message contains.
    title: String,
}

impl ThreadFilter {
    /// Reads the words of a search field.
    pub(crate) fn parse(text: &str) -> Self {
        let mut filter = Self::default();
        let mut title: Vec<String> = Vec::new();
        for (word, is_quoted) in words(text) {
            let named = word.split_once(':').filter(|(_, value)| !value.is_empty() && !is_quoted);
            match named.and_then(|(name, value)| Some((NAMES.into_iter().find(|known| *known == name)?, value))) {
                Some((name, value)) => filter.set(name, value),
                None => title.push(word),
            }
        }
        filter.title = title.join(" ");
        filter
    }

    /// Reads the words in the field `q` of an address, and the fields that are named as a filter is.
    pub(crate) fn read(fields: &Fields) -> Self {
        let mut filter = Self::parse(fields.get("q").unwrap_or_default());
        for name in NAMES {
            if let Some(value) = fields.get(name) {
                filter.set(name, value);
            }
        }
        for (field, mark) in [("archived", "archived"), ("on_head", PRESENT)] {
            if fields.get(field).is_some() {
                filter.set("is", mark);
            }
        }
        if let Some(title) = fields.get("title") {
            title.clone_into(&mut filter.title);
        }
        filter
    }

    fn set(&mut self, name: &'static str, value: &str) {
        let value = if (name, value) == ("status", "waiting") { "interrupted" } else { value };
        self.pairs.retain(|(of, _)| *of != name);
        self.pairs.push((name, value.to_owned()));
    }

    /// Returns the value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(of, _)| *of == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty() && self.title.is_empty()
    }

    /// Returns the first filter that messages alone have.
    pub(crate) fn of_messages(&self) -> Option<&'static str> {
        let is_of = |(name, value): &&(&'static str, String)| OF_MESSAGES.contains(name) || is_present(name, value);
        self.pairs.iter().find(is_of).map(|(name, _)| *name)
    }

    /// Returns the first filter that threads alone have; `since` too, unless there is one of messages.
    pub(crate) fn of_threads(&self) -> Option<&'static str> {
        let has_other = self.of_messages().is_some();
        let is_of = |(name, value): &&(&'static str, String)| {
            !OF_MESSAGES.contains(name) && !is_present(name, value) && (*name != "since" || !has_other)
        };
        self.pairs.iter().find(is_of).map(|(name, _)| *name)
    }

    /// Returns the words of a title or of a message.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    /// Returns the filter with a value, or without the name if it has that value.
    pub(crate) fn toggled(&self, name: &'static str, value: &str) -> Self {
        let mut filter = self.clone();
        if self.get(name) == Some(value) {
            filter.pairs.retain(|(of, _)| *of != name);
        } else {
            filter.set(name, value);
        }
        filter
    }

    /// Returns the filter as words.
    pub(crate) fn text(&self) -> String {
        let quoted = |text: &str| {
            let is_plain = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c == '"');
            if is_plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\\\"")) }
        };
        let pairs = self.pairs.iter().map(|(name, value)| format!("{name}:{}", quoted(value)));
        // A word of a title that looks like a filter is in quotes.
        let title = self.title.split_whitespace().map(|word| {
            if word.split_once(':').is_some_and(|(name, _)| NAMES.contains(&name)) || word.contains('"') {
                format!("\"{}\"", word.replace('"', "\\\""))
            } else {
                word.to_owned()
            }
        });
        pairs.chain(title).collect::<Vec<_>>().join(" ")
    }

    /// Returns the address of the threads that pass.
    pub(crate) fn address(&self) -> String {
        if self.is_empty() { "/".to_owned() } else { format!("/?q={}", encode(&self.text())) }
    }

    /// Returns the address of the messages that pass.
    pub(crate) fn search_address(&self) -> String {
        format!("/search?q={}", encode(&self.text()))
    }

    /// Returns the search of messages.
    ///
    /// # Errors
    /// A refusal that names the filter of threads, or the word whose value is not valid.
    pub(crate) fn search(&self, now: Timestamp) -> Result<SearchQuery, Refusal> {
        if let Some(name) = self.of_threads() {
            return Err(Refusal::usage(format!("{name} is a filter of threads, which a search of messages has not")));
        }
        let mut query = SearchQuery::new(&*self.title);
        for (name, value) in &self.pairs {
            query = match *name {
                "thread" => query.thread(value),
                "role" => query.role(value),
                "node" => query.node(value),
                "channel" => query.channel(value),
                "since" => query.since(since(value, now)?),
                _ => query.on_head(),
            };
        }
        Ok(query)
    }

    /// Returns the query of the store.
    ///
    /// # Errors
    /// A refusal that names the filter of messages, or the word whose value is not valid.
    pub(crate) fn query(&self, now: Timestamp) -> Result<ThreadQuery, Refusal> {
        if let Some(name) = self.of_messages() {
            return Err(Refusal::usage(format!("{name} is a filter of messages, which a listing of threads has not")));
        }
        let mut query = ThreadQuery::new();
        if !self.title.is_empty() {
            query = query.title_contains(&*self.title);
        }
        for (name, value) in &self.pairs {
            match *name {
                "project" => query.project = Some(value.clone()),
                "label" => query.label = Some(value.clone()),
                "graph" => query.graph = Some(value.clone()),
                "status" => query.status = Some(status(value)?),
                "since" => query = query.since(since(value, now)?),
                _ if value == "archived" => query = query.archived(true),
                _ if value == "half" => query.partial = true,
                _ => {
                    let marks = MARKS.join(", ");
                    return Err(Refusal::usage(format!("is:{} is not known: {marks}", shortened(value, 40))));
                }
            }
        }
        Ok(query)
    }
}

fn is_present(name: &str, value: &str) -> bool {
    name == "is" && value == PRESENT
}

fn status(name: &str) -> Result<StatusKind, Refusal> {
    let names = || StatusKind::ALL.map(status_name).join(", ");
    status_named(name).ok_or_else(|| Refusal::usage(format!("{} is not a status: {}", shortened(name, 40), names())))
}

/// Reads a timestamp, a date, or an age: `90s`, `30m`, `12h`, `1d`, `2w`.
fn since(text: &str, now: Timestamp) -> Result<Timestamp, Refusal> {
    let unit = |unit: char| match unit {
        's' => Some(1_i64),
        'm' => Some(60),
        'h' => Some(3_600),
        'd' => Some(86_400),
        'w' => Some(604_800),
        _ => None,
    };
    let age = || {
        let last = text.chars().last()?;
        let number: i64 = text[..text.len() - last.len_utf8()].parse().ok().filter(|number| *number >= 0)?;
        number.checked_mul(unit(last)?)?.checked_mul(1_000_000)
    };
    if let Some(micros) = age() {
        return Ok(Timestamp::from_micros(now.as_micros().saturating_sub(micros)));
    }
    let wrong = |_| Refusal::usage(format!("{} is not a date, a timestamp or an age such as 1d", shortened(text, 40)));
    text.parse::<Timestamp>().map_err(wrong)
}

/// Splits a text into words, each with whether it begins with a quote. A quote may begin within a word:
/// `project:"a b"`.
fn words(text: &str) -> Vec<(String, bool)> {
    let (mut words, mut word, mut in_quotes, mut is_quoted, mut is_open) =
        (Vec::new(), String::new(), false, false, false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if in_quotes && chars.peek() == Some(&'"') => word.extend(chars.next()),
            '"' => {
                is_quoted |= !is_open;
                (in_quotes, is_open) = (!in_quotes, true);
            }
            c if c.is_whitespace() && !in_quotes => {
                if is_open {
                    words.push((std::mem::take(&mut word), is_quoted));
                }
                (is_quoted, is_open) = (false, false);
            }
            c => {
                word.push(c);
                is_open = true;
            }
        }
    }
    if is_open {
        words.push((word, is_quoted));
    }
    words.retain(|(word, _)| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_the_same_filter_again() {
        for text in [
            "project:home status:failed since:1d",
            "project:\"my home\" label:\"a\\\"b\" two words",
            "\"status:failed\" http://x is:half",
            "status:waiting",
            "",
        ] {
            let filter = ThreadFilter::parse(text);
            assert_eq!(ThreadFilter::parse(&filter.text()), filter, "{text}: {}", filter.text());
        }
        let filter = ThreadFilter::parse("project:\"my home\" gasthof status:waiting status:failed http://x");
        assert_eq!((filter.get("project"), filter.get("status")), (Some("my home"), Some("failed")));
        assert_eq!((filter.title(), filter.of_threads()), ("gasthof http://x", Some("project")));
        assert_eq!(
            ThreadFilter::parse("\"status:failed\""),
            ThreadFilter { title: "status:failed".into(), ..Default::default() }
        );
        assert_eq!(filter.toggled("status", "failed").get("status"), None);
        assert_eq!(filter.toggled("status", "done").get("status"), Some("done"));
    }

    #[test]
    fn filters_of_messages_are_not_those_of_threads() {
        let now = Timestamp::from_micros(200_000_000_000);
        let found = |text: &str| {
            let filter = ThreadFilter::parse(text);
            (filter.of_messages(), filter.of_threads(), filter.search(now).is_ok(), filter.query(now).is_ok())
        };
        assert_eq!(found("bern role:ai since:1d is:present"), (Some("role"), None, true, false));
        assert_eq!(found("bern since:1d"), (None, Some("since"), false, true));
        assert_eq!(found("project:a role:ai"), (Some("role"), Some("project"), false, false));
        assert_eq!(found("bern"), (None, None, true, true));
    }

    #[test]
    fn values_that_are_not_valid_are_named() {
        let now = Timestamp::from_micros(200_000_000_000);
        let query = |text: &str| ThreadFilter::parse(text).query(now).map_err(|refusal| refusal.message);
        assert_eq!(query("since:1d").unwrap().since, Some(Timestamp::from_micros(200_000_000_000 - 86_400_000_000)));
        assert_eq!(query("since:2020-01-31").unwrap().since.unwrap().to_string().get(..10), Some("2020-01-31"));
        for (text, name) in [
            ("since:soon", "soon"),
            ("since:-1d", "-1d"),
            ("since:99999999999999999999w", "99999999999999999999w"),
            ("since:9223372036854775807w", "9223372036854775807w"),
            ("status:lost", "lost"),
            ("is:odd", "odd"),
        ] {
            let message = query(text).map(|_| ()).unwrap_err();
            assert!(message.contains(name), "{text}: {message}");
        }
    }
}
