//! Aider: a text of Markdown with the chats of a folder.
//!
//! The text has no ids. The id of a chat is made of its begin, so that it stays the same when the text grows.

use std::collections::HashMap;

use annals_base::Timestamp;

use crate::arena::{DraftArena, fnv, pick};
use crate::draft::{DraftKind, MessageDraft};
use crate::error::ImportError;
use crate::json;
use crate::lines::TextLines;
use crate::model::SourceSession;
use crate::output::ReadOutput;
use crate::probe::{FileProbe, SourceFile};
use crate::sources::facts::{SourceFacts, home, variable, working};
use crate::sources::{HistorySource, SourceKind};

/// The begin of the line that begins a chat.
const HEADER: &str = "# aider chat started at ";

/// The request of a user who entered nothing.
const BLANK: &str = "<blank>";

/// The begin of the tag around the reasoning of an answer, before the digits that tell it from other tags.
const TAG: &str = "<thinking-content-";
const TAG_DIGITS: usize = 32;

/// Commands whose text is a request.
const REQUESTS: [&str; 5] = ["/ask", "/code", "/architect", "/context", "/help"];

pub(super) const FACTS: SourceFacts = SourceFacts {
    programs: "Aider",
    places: &[
        working(".aider.chat.history.md"),
        home(".aider.chat.history.md"),
        variable("AIDER_CHAT_HISTORY_FILE", ""),
    ],
    has_own_folders: false,
    versions: "0.84 and 0.86, by files",
    checked: "2026-11",
    lost: "the zone of times, which are taken as UTC; token counts, which are rounded",
};

/// The files of an import.
#[derive(Default)]
pub(crate) struct AiderFiles {
    files: Vec<SourceFile>,
}

impl HistorySource for AiderFiles {
    fn recognise(&mut self, file: &FileProbe) -> bool {
        let is_own = file.text().starts_with(HEADER);
        self.files.extend(is_own.then(|| file.file.clone()));
        is_own
    }

    fn read(self: Box<Self>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        self.files.iter().try_for_each(|file| out.file(&file.name, |out| read(file, out)))
    }
}

fn read(file: &SourceFile, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
    // The number of chats that have begun in the same way.
    let mut seen = HashMap::new();
    let mut chat: Option<AiderChat> = None;
    let mut lines = TextLines::open(&file.path);
    while let Some((number, line)) = lines.next_line() {
        let place = format!("{}:{number}", file.name);
        let line = match line {
            Ok(line) => line,
            Err(fault) => {
                out.fault(fault, place)?;
                continue;
            }
        };
        match (line.strip_prefix(HEADER), &mut chat) {
            (Some(started), _) => {
                give(chat.take(), &mut seen, out)?;
                chat = Some(AiderChat::new(started.trim(), place));
            }
            (None, Some(chat)) => chat.line(&line),
            (None, None) => {}
        }
    }
    give(chat, &mut seen, out)
}

/// Gives a chat as a session; one without a request and an answer is counted.
fn give(chat: Option<AiderChat>, seen: &mut HashMap<u64, usize>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
    let Some(mut chat) = chat else { return Ok(()) };
    chat.flush();
    if !chat.arena.drafts.iter().any(|draft| draft.kind != DraftKind::System) {
        return out.unknown("empty_file", chat.place, "");
    }
    let count = seen.entry(chat.hash).or_default();
    *count += 1;
    let id = match *count {
        1 => format!("{}-{:016x}", chat.started, chat.hash),
        count => format!("{}-{:016x}-{count}", chat.started, chat.hash),
    };
    for (ordinal, draft) in chat.arena.drafts.iter_mut().enumerate() {
        draft.derived = format!("{id}:{ordinal}");
    }
    let main: Vec<usize> = (0..chat.arena.drafts.len()).collect();
    let main = pick(&chat.arena.into_messages(), &main);
    out.session(SourceSession { created_at: chat.created_at, ..SourceSession::new(SourceKind::Aider, id, main) })
}

/// The speaker of a run of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChatSpeaker {
    User,
    Program,
    Model,
}

/// A chat, line by line.
struct AiderChat {
    place: String,
    created_at: Option<Timestamp>,
    /// The timestamp as the text has it, so that chats are sorted by it.
    started: String,
    /// The hash of the first line and of what the program said first.
    hash: u64,
    arena: DraftArena,
    speaker: ChatSpeaker,
    lines: Vec<String>,
    /// The mark of the open fence of an answer, and its length.
    fence: Option<(char, usize)>,
    model: Option<String>,
}

impl AiderChat {
    fn new(started: &str, place: String) -> Self {
        Self {
            place,
            // The text names no zone.
            created_at: json::utc(started),
            started: started.chars().map(|c| if c.is_ascii_digit() || c == ':' { c } else { '-' }).take(19).collect(),
            hash: fnv(started.as_bytes()),
            arena: DraftArena::default(),
            speaker: ChatSpeaker::Model,
            lines: Vec::new(),
            fence: None,
            model: None,
        }
    }

    fn line(&mut self, line: &str) {
        if self.fence.is_some() {
            self.mark(line);
            self.lines.push(line.to_owned());
            return;
        }
        let (speaker, text) = match line {
            "####" => (ChatSpeaker::User, ""),
            ">" => (ChatSpeaker::Program, ""),
            line => match (line.strip_prefix("#### "), line.strip_prefix("> ")) {
                (Some(text), _) => (ChatSpeaker::User, text.trim_end()),
                (None, Some(text)) => (ChatSpeaker::Program, text.trim_end()),
                (None, None) => (ChatSpeaker::Model, line),
            },
        };
        if speaker != self.speaker {
            self.flush();
            self.speaker = speaker;
        }
        if speaker == ChatSpeaker::Model {
            self.mark(line);
        }
        self.lines.push(text.to_owned());
    }

    /// Opens or closes a fence, if a line is one.
    fn mark(&mut self, line: &str) {
        let line = line.trim_start();
        let Some(mark) = line.chars().next().filter(|mark| matches!(mark, '`' | '~')) else { return };
        let rest = line.trim_start_matches(mark);
        let length = line.len() - rest.len();
        self.fence = match self.fence {
            None if length >= 3 => Some((mark, length)),
            Some((of, least)) if of == mark && length >= least && rest.trim().is_empty() => None,
            fence => fence,
        };
    }

    /// Ends the run of lines.
    fn flush(&mut self) {
        self.fence = None;
        let lines = std::mem::take(&mut self.lines);
        let text = lines.join("\n");
        match self.speaker {
            ChatSpeaker::User if text == BLANK || text.trim().is_empty() => {}
            ChatSpeaker::User => {
                let kind = if is_command(&text) { DraftKind::System } else { DraftKind::Human };
                self.push(kind, |draft| draft.text(&text));
            }
            ChatSpeaker::Program => {
                let named = |line: &String| {
                    let model = line.strip_prefix("Main model: ").or_else(|| line.strip_prefix("Model: "))?;
                    Some(model.split_once(" with ")?.0.to_owned())
                };
                self.model = lines.iter().rev().find_map(named).or(self.model.take());
                if self.arena.drafts.is_empty() {
                    self.hash = fnv(format!("{:016x}{text}", self.hash).as_bytes());
                }
                self.push(DraftKind::System, |draft| draft.text(&text));
            }
            ChatSpeaker::Model => {
                let (reasoning, answer) = without_reasoning(&text);
                let answer = without_blank_ends(&answer);
                if !answer.is_empty() || !reasoning.is_empty() {
                    let model = self.model.clone();
                    self.push(DraftKind::Ai, |draft| {
                        draft.reasoning(&reasoning);
                        draft.text(answer);
                        draft.model = model;
                    });
                }
            }
        }
    }

    fn push(&mut self, kind: DraftKind, fill: impl FnOnce(&mut MessageDraft)) {
        let mut draft = MessageDraft::new(kind, String::new());
        fill(&mut draft);
        if !draft.blocks.is_empty() {
            self.arena.add(draft);
        }
    }
}

/// Returns whether a text of the user is a command, and no request.
fn is_command(text: &str) -> bool {
    if !text.strip_prefix('/').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_alphabetic())) {
        return false;
    }
    let (command, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    !REQUESTS.contains(&command) || rest.trim().is_empty()
}

/// Returns the reasoning in an answer, and the text around it.
fn without_reasoning(text: &str) -> (String, String) {
    let (mut reasoning, mut rest, mut left) = (String::new(), String::new(), text);
    while let Some(at) = left.find(TAG) {
        let (before, from) = left.split_at(at);
        rest.push_str(before);
        let digits = from.get(TAG.len()..TAG.len() + TAG_DIGITS);
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let inner = digits.and_then(|digits| {
            let inner = from[TAG.len() + TAG_DIGITS..].strip_prefix('>')?;
            inner.split_once(&format!("</thinking-content-{digits}>"))
        });
        match inner {
            Some((inner, after)) => {
                reasoning.push_str(inner.trim());
                left = after;
            }
            None => {
                rest.push_str(TAG);
                left = &from[TAG.len()..];
            }
        }
    }
    rest.push_str(left);
    (reasoning, rest)
}

/// Returns a text without the blank lines at its ends.
fn without_blank_ends(text: &str) -> &str {
    let mut text = text;
    while let Some((first, rest)) = text.split_once('\n').filter(|(first, _)| first.trim().is_empty()) {
        debug_assert!(first.len() < text.len(), "the text gets shorter");
        text = rest;
    }
    while let Some((rest, _)) = text.rsplit_once('\n').filter(|(_, last)| last.trim().is_empty()) {
        text = rest;
    }
    if text.trim().is_empty() { "" } else { text }
}
