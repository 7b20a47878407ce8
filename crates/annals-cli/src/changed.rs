//! The changes of a checkpoint as texts for a terminal.

use annals_view::ChangedChannel;

use crate::output::{count, cut, escape};

/// The cells of the first words of a message.
const WORDS_CELLS: usize = 56;

/// Returns the counts of a change: `messages | 2 added, 1 edited`, `plan | changed`.
pub(crate) fn stat(change: &ChangedChannel) -> [String; 2] {
    let name = escape(&change.channel).into_owned();
    let Some((added, edited)) = change.items else { return [name, "changed".into()] };
    let parts = [(added, "added"), (edited, "edited")];
    let parts = parts.into_iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}"));
    let parts = parts.collect::<Vec<_>>().join(", ");
    [name, if parts.is_empty() { "removed or moved".into() } else { parts }]
}

/// Returns all changes as a short text, that of new messages with the first words: `human: A hotel (+1 message)`.
pub(crate) fn text(all: &[ChangedChannel]) -> String {
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn one(change: &ChangedChannel) -> String {
    let (Some((role, text)), Some((added @ 1.., edited))) = (&change.begin, change.items) else {
        return escape(&change.text()).into_owned();
    };
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = |text: &str| cut(&escape(text), WORDS_CELLS).into_owned();
    let number = |n: u64| count(usize::try_from(n).unwrap_or(usize::MAX), "message");
    let mut words = format!("{}: {}", shown(role), shown(&line));
    if added > 1 {
        words.push_str(&format!(" (+{})", number(added - 1)));
    }
    if edited > 0 {
        words.push_str(&format!(" ~{}", number(edited)));
    }
    words
}
