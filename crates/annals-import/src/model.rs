//! The plain data that a reader produces: sessions, their messages, and the records that were not understood.
//!
//! Invariant: the messages of one line have different ids. *Absent:* files, and the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use annals_base::Timestamp;
use annals_messages::{Message, Usage, first_words};

use crate::error::SourceLimit;
use crate::sources::SourceKind;

/// A session of another program: its lines of messages, and the facts about it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SourceSession {
    /// The program.
    pub source: SourceKind,
    /// The id that the source gives it. It is derived where the source has none.
    pub id: String,
    /// The ids that were derived from the content when it was shorter, the longest first: a thread with one of them
    /// that holds the begin of the main line is this session as it was.
    pub earlier_ids: Vec<String>,
    /// The session that it was forked from, or that started it.
    pub parent: Option<ParentLink>,
    /// The title.
    pub title: Option<String>,
    /// The timestamp of its creation.
    pub created_at: Option<Timestamp>,
    /// The working folder, the first one that the source stores.
    pub folder: Option<String>,
    /// Token counts that belong to no message.
    pub usage: Option<Usage>,
    /// The main line: the messages that the program would show now.
    pub main: Vec<Arc<SessionMessage>>,
    /// The other lines.
    pub branches: Vec<SessionBranch>,
}

impl SourceSession {
    pub(crate) fn new(source: SourceKind, id: String, main: Vec<Arc<SessionMessage>>) -> Self {
        Self {
            source,
            id,
            earlier_ids: Vec::new(),
            parent: None,
            title: None,
            created_at: None,
            folder: None,
            usage: None,
            main,
            branches: Vec::new(),
        }
    }

    /// Returns the [first words](first_words) of the first human message of the main line that has any. A session
    /// without a title is shown under them.
    pub(crate) fn first_words(&self) -> Option<String> {
        let humans = self.main.iter().filter(|message| message.message.kind() == "human");
        humans.map(|message| message.message.text()).find_map(|text| first_words(&text))
    }
}

/// A line of messages that the program has left.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionBranch {
    /// The number of messages that it shares with the main line, from the start.
    pub after: usize,
    /// The messages after those, up to the end of the line.
    pub messages: Vec<Arc<SessionMessage>>,
}

/// A message of a session.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SessionMessage {
    /// The message. It has an id.
    pub message: Message,
    /// Its timestamp.
    pub at: Option<Timestamp>,
    /// True if the source has no id: it was derived from the place of the record.
    pub has_derived_id: bool,
    /// The id of the first message before this summary that the program went on with; `None` if it went on with the
    /// summary alone.
    pub first_retained: Option<String>,
}

impl SessionMessage {
    /// Returns whether it begins a turn in which the model has answered already.
    pub(crate) fn begins_turn(&self) -> bool {
        self.message.kind() == "human" || is_summary(&self.message)
    }

    /// Returns whether two messages are equal, derived ids and timestamps aside.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        self.is_copy(other) && ((self.has_derived_id && other.has_derived_id) || self.message.id == other.message.id)
    }

    /// Returns whether two messages are equal, ids and timestamps aside.
    pub(crate) fn is_copy(&self, other: &Self) -> bool {
        let without = |of: &Self| {
            let mut message = of.message.clone();
            message.additional_kwargs.shift_remove(crate::draft::TIMESTAMP);
            message.id = None;
            message
        };
        without(self) == without(other)
    }
}

/// Returns whether a message is the text that a compaction left.
pub(crate) fn is_summary(message: &Message) -> bool {
    message.additional_kwargs.get("summary").and_then(annals_base::Value::as_bool) == Some(true)
}

/// Returns the number of messages that are folded in a line at one of its ends: those before its last summary, but for
/// messages that the program went on with.
pub(crate) fn folded(line: &[Arc<SessionMessage>]) -> Option<usize> {
    let at = line.iter().rposition(|message| is_summary(&message.message))?;
    let first = line[at].first_retained.as_deref();
    let retained = first.and_then(|id| line[..at].iter().position(|message| message.message.id.as_deref() == Some(id)));
    Some(retained.unwrap_or(at)).filter(|count| *count > 0)
}

/// Returns whether the record of a message named a parent that its file does not hold, so that it was joined to the
/// record before it.
pub(crate) fn is_joined(message: &Message) -> bool {
    message.additional_kwargs.get(JOINED).and_then(annals_base::Value::as_bool) == Some(true)
}

/// The entry of `additional_kwargs` that marks a joined message.
pub(crate) const JOINED: &str = "joined";

/// The relation of a session to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParentLink {
    /// The session is a fork.
    Fork {
        /// The id of the parent.
        id: String,
        /// The number of messages at the start of the main line that are those of the parent.
        messages: usize,
    },
    /// The session is the run of another agent.
    Sub {
        /// The id of the parent.
        id: String,
        /// The tool call of the parent that started it, if it is known.
        call: Option<String>,
    },
}

impl ParentLink {
    /// Returns the id of the parent.
    pub fn id(&self) -> &str {
        match self {
            Self::Fork { id, .. } | Self::Sub { id, .. } => id,
        }
    }
}

/// A record that was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownRecord {
    /// The program, if the file was recognised.
    pub source: Option<SourceKind>,
    /// The kind: a type of the source, `part/<type>` for a part whose text stands nowhere that is known, or `not_json`,
    /// `torn_last_line`, `too_large`, `missing_parent`, `empty_file`, `unrecognised_file` and the like.
    pub kind: String,
    /// The place: the file, and the line or row in it.
    pub place: String,
    /// The record as it stands in the source; for a record that cannot be read the reason; empty for a file.
    pub raw: String,
    /// The limit that the record exceeds, if its kind is `too_large`.
    pub limit: Option<SourceLimit>,
}

impl UnknownRecord {
    pub(crate) fn new(kind: impl Into<String>, place: impl Into<String>, raw: impl Into<String>) -> Self {
        Self { source: None, kind: kind.into(), place: place.into(), raw: raw.into(), limit: None }
    }
}

/// The number of records that were not understood, by kind.
pub(crate) type UnknownCounts = BTreeMap<String, u64>;

/// Cuts a line into turns, each of which becomes one checkpoint. A turn begins with a human message or a summary,
/// unless the open turn has no message of the model and no tool result yet.
pub fn turns(line: &[Arc<SessionMessage>]) -> Vec<&[Arc<SessionMessage>]> {
    let mut turns = Vec::new();
    let (mut start, mut has_answer) = (0, false);
    for (at, message) in line.iter().enumerate() {
        if has_answer && message.begins_turn() {
            turns.push(&line[start..at]);
            (start, has_answer) = (at, false);
        }
        has_answer |= matches!(message.message.kind(), "ai" | "tool");
    }
    if start < line.len() {
        turns.push(&line[start..]);
    }
    debug_assert_eq!(turns.iter().map(|turn| turn.len()).sum::<usize>(), line.len(), "every message is in one turn");
    turns
}
