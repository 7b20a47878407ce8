//! The tool `what_fixed`: where an error last occurred in each thread, and the messages after it.
//!
//! All words of the error are searched for first; then those without digits and paths, which differ from one
//! occurrence to the next; then the longest of these. *Absent:* a judgement whether the error was fixed.

use std::collections::HashSet;

use annals::history::Snapshot;
use annals::store::search::SearchHit;
use annals::store::{ItemRange, SearchQuery, Store};

use crate::arguments::ToolArguments;
use crate::error::ToolError;
use crate::limits::{ERROR_HITS, MESSAGE_CHARS, MESSAGES_AFTER, QUERY_BYTES_MAX};
use crate::names::{point_text, words};
use crate::reply::{HistoryReply, one_line};

/// The characters of a message after an error.
const AFTER_CHARS: usize = MESSAGE_CHARS / 2;
/// The words of the last search.
const LONGEST_WORDS: usize = 4;

pub(crate) fn what_fixed(store: &Store, arguments: &ToolArguments<'_>) -> Result<HistoryReply, ToolError> {
    let error = arguments.required("error")?;
    let mut reply = HistoryReply::new();
    for query in queries(error) {
        let hits = store.search(SearchQuery::new(&query).limit(ERROR_HITS))?.hits;
        let hits = last_of_threads(hits, arguments.count("limit"));
        if hits.is_empty() {
            continue;
        }
        reply.fact(format!("{} threads hold the words {query:?}, the newest first.", hits.len()));
        for hit in &hits {
            occurrence(store, hit, &mut reply)?;
        }
        return Ok(reply);
    }
    reply.fact("This error is in no thread: none of its messages or values holds its words.");
    Ok(reply)
}

/// Returns the queries for an error, the narrowest first.
fn queries(error: &str) -> Vec<String> {
    let all: Vec<&str> = error.split_whitespace().collect();
    let is_plain = |word: &&str| !word.contains(|c: char| c.is_ascii_digit() || matches!(c, '/' | '\\'));
    let plain: Vec<&str> = all.iter().copied().filter(is_plain).collect();
    let mut lengths: Vec<usize> = plain.iter().map(|word| word.len()).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    let least = lengths.get(LONGEST_WORDS - 1).copied().unwrap_or_default();
    let longest: Vec<&str> = plain.iter().copied().filter(|word| word.len() >= least).take(LONGEST_WORDS).collect();
    let mut queries: Vec<String> = Vec::new();
    for words in [all, plain, longest] {
        let mut query = String::new();
        for word in words {
            if query.len() + word.len() + 1 > QUERY_BYTES_MAX {
                break;
            }
            if !query.is_empty() {
                query.push(' ');
            }
            query.push_str(word);
        }
        if !query.is_empty() && !queries.contains(&query) {
            queries.push(query);
        }
    }
    queries
}

/// Returns the newest hit of each thread.
fn last_of_threads(hits: Vec<SearchHit>, most: usize) -> Vec<SearchHit> {
    let mut seen = HashSet::new();
    hits.into_iter().filter(|hit| seen.insert(hit.point.thread.clone())).take(most).collect()
}

/// Adds the rows of an occurrence: the place, the error, and the messages after it.
fn occurrence(store: &Store, hit: &SearchHit, reply: &mut HistoryReply) -> Result<(), ToolError> {
    let thread = store.thread(hit.point.thread.as_str())?.with_namespace(hit.point.namespace.clone());
    let written = hit.snapshot(store)?;
    // What came after an item of the present state is in the present state.
    let at = match thread.head()? {
        Some(head) if hit.on_head => head,
        _ => written.clone(),
    };
    let (channel, position) = (&hit.channel, hit.position);
    let snippet = one_line(&hit.snippet.marked("**", "**"), AFTER_CHARS);
    let author = hit.role.as_deref().or(hit.node.as_deref()).unwrap_or("value");
    let place = format!("== {} {channel}[{position}], {}", point_text(&written)?, hit.created_at);
    if !reply.row(&place) || !reply.row(&format!("[{position}] {author}: {snippet}")) {
        return Ok(());
    }
    let after = after(&at, channel, position)?;
    if after.is_empty() {
        reply.row("nothing came after it in this channel");
    }
    for row in &after {
        if !reply.row(row) {
            break;
        }
    }
    Ok(())
}

/// Returns the messages after a position, as rows.
fn after(at: &Snapshot, channel: &str, position: u64) -> Result<Vec<String>, ToolError> {
    let range = ItemRange::Positions(position + 1, position + 1 + MESSAGES_AFTER);
    let mut positions = Vec::new();
    at.visit_items(channel, range, |row| {
        positions.push(row.position);
        Ok(())
    })?;
    let values = at.items(channel, range)?;
    let rows = positions.iter().zip(values);
    Ok(rows.map(|(position, value)| format!("[{position}] {}", words(&value.to_json(), AFTER_CHARS))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_get_wider() {
        let all = queries("error[E0502]: cannot borrow `cart` as mutable at src/main.rs:17");
        assert_eq!(all[0], "error[E0502]: cannot borrow `cart` as mutable at src/main.rs:17");
        assert_eq!(all[1..], ["cannot borrow `cart` as mutable at", "cannot borrow `cart` mutable"]);
    }

    #[test]
    fn a_long_error_is_cut_to_the_limit_of_a_query() {
        let all = queries(&"word ".repeat(10_000));
        assert!(!all.is_empty() && all.iter().all(|query| query.len() <= QUERY_BYTES_MAX));
        assert_eq!(queries("404"), ["404"]);
        assert_eq!(queries(&"x".repeat(QUERY_BYTES_MAX)), Vec::<String>::new());
    }
}
