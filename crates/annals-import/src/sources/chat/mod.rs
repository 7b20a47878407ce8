//! Chats of other programs: messages with roles, alone or in conversations. The export of ChatGPT is read by `chatgpt`.

mod chatgpt;

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;

use serde_json::{Value as Json, json};

use crate::arena::{DraftArena, fnv, pick};

use crate::document;
use crate::draft::{DraftKind, MessageDraft};
use crate::error::{ImportError, SourceFault};
use crate::json;
use crate::limits::OTHER_LINES_SHARE;
use crate::lines::JsonLines;
use crate::model::SourceSession;
use crate::output::ReadOutput;
use crate::probe::{FileProbe, SourceFile, has};
use crate::sources::facts::SourceFacts;
use crate::sources::{HistorySource, SourceKind};

/// The layout of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChatLayout {
    /// Lines with the member `messages`.
    ConversationLines,
    /// An array of objects with the member `messages`.
    ConversationArray,
    /// Lines with `role`, and with `content` or calls.
    RoleLines,
    /// An array of objects with `role`, and with `content` or calls.
    RoleArray,
    /// Lines with the member `conversations`.
    ShareGptLines,
    /// An array of objects with the member `conversations`.
    ShareGptArray,
    /// An array of conversations with the member `mapping`.
    ChatGpt,
}

/// Returns whether a record is a message. Programs leave out the content of one with calls.
fn is_message(of: &Json) -> bool {
    of["role"].is_string() && ["content", "tool_calls", "function_call"].iter().any(|name| of.get(name).is_some())
}

fn is_share_gpt(of: &Json) -> bool {
    let is_entry = |entry: &Json| entry["from"].is_string() && has(entry, "value");
    of["conversations"].as_array().is_some_and(|entries| entries.iter().all(is_entry))
}

impl ChatLayout {
    /// Returns the layout of lines. A line in ten may be another one: it does not make a file a stranger.
    fn of_lines(lines: &[Json]) -> Option<Self> {
        let is_most = |is: fn(&Json) -> bool| {
            let others = lines.iter().filter(|line| !is(line)).count();
            !lines.is_empty() && others <= lines.len() / OTHER_LINES_SHARE
        };
        if is_most(|line| line["messages"].is_array()) {
            Some(Self::ConversationLines)
        } else if is_most(is_message) {
            Some(Self::RoleLines)
        } else {
            is_most(is_share_gpt).then_some(Self::ShareGptLines)
        }
    }

    /// Returns the layout of an array, by its first item.
    fn of_array(first: &Json) -> Option<Self> {
        if first["mapping"].is_object() {
            Some(Self::ChatGpt)
        } else if is_message(first) {
            Some(Self::RoleArray)
        } else if first["messages"].is_array() {
            Some(Self::ConversationArray)
        } else {
            is_share_gpt(first).then_some(Self::ShareGptArray)
        }
    }
}

pub(super) const FACTS: SourceFacts = SourceFacts {
    programs: "ChatGPT (export), OpenAI lines, ShareGPT",
    places: &[],
    has_own_folders: false,
    versions: "the export of ChatGPT by descriptions, lines and arrays by files",
    checked: "2026-11",
    lost: "widgets of ChatGPT",
};

/// The files of an import.
#[derive(Default)]
pub(crate) struct ChatFiles {
    files: Vec<(SourceFile, ChatLayout)>,
}

impl HistorySource for ChatFiles {
    fn recognise(&mut self, file: &FileProbe) -> bool {
        let layout = ChatLayout::of_lines(file.lines()).or_else(|| file.first_item().and_then(ChatLayout::of_array));
        self.files.extend(layout.map(|layout| (file.file.clone(), layout)));
        layout.is_some()
    }

    fn read(self: Box<Self>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let mut files = self.files.iter();
        files.try_for_each(|(file, layout)| out.file(&file.name, |out| read(file, *layout, out)))
    }
}

/// Reads a file.
fn read(file: &SourceFile, layout: ChatLayout, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
    let place = file.name.as_str();
    let mut ids = ConversationIds::default();
    match layout {
        ChatLayout::ConversationLines | ChatLayout::ShareGptLines => {
            let mut lines = JsonLines::open(&file.path);
            while let Some((number, line)) = lines.next_json(out, place)? {
                let id = ids.conversation(json::maybe_text(&line, "id"), layout, messages_of(&line));
                conversation(id, &line, out, &format!("{place}:{number}"))?;
            }
            Ok(())
        }
        ChatLayout::RoleLines => {
            let (mut chat, mut hashes) = (ChatMessages::default(), RecordHashes::new(layout));
            let mut lines = JsonLines::open(&file.path);
            while let Some((number, line)) = lines.next_json(out, place)? {
                hashes.add(&line);
                chat.message(&hashes.derived(number), &line, out, &format!("{place}:{number}"))?;
            }
            chat.give(hashes.into_id(), out)
        }
        ChatLayout::RoleArray => {
            let (mut chat, mut hashes) = (ChatMessages::default(), RecordHashes::new(layout));
            let fault = document::each_item(&file.path, |at, item| {
                hashes.add(&item);
                chat.message(&hashes.derived(at), &item, out, &format!("{place}#{at}"))?;
                Ok(ControlFlow::Continue(()))
            })?;
            end(fault, place, out)?;
            chat.give(hashes.into_id(), out)
        }
        ChatLayout::ConversationArray | ChatLayout::ShareGptArray | ChatLayout::ChatGpt => {
            let fault = document::each_item(&file.path, |at, item| {
                let other = if layout == ChatLayout::ChatGpt { "conversation_id" } else { "id" };
                let own = json::maybe_text(&item, "id").or_else(|| json::maybe_text(&item, other));
                let (whole, place) = (std::slice::from_ref(&item), format!("{place}#{at}"));
                match layout {
                    ChatLayout::ChatGpt => {
                        chatgpt::conversation(ids.conversation(own, layout, whole).of_session, &item, out, &place)?;
                    }
                    _ => conversation(ids.conversation(own, layout, messages_of(&item)), &item, out, &place)?,
                }
                Ok(ControlFlow::Continue(()))
            })?;
            end(fault, place, out)
        }
    }
}

/// Reports an array that ends too early; the items before its end were read.
fn end(fault: Option<SourceFault>, place: &str, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
    fault.map_or(Ok(()), |fault| out.fault(fault, place))
}

/// The ids of a conversation and of its messages.
struct ConversationId {
    of_session: String,
    /// The ids that it had when its source ended earlier, the longest first.
    earlier: Vec<String>,
    /// The begin of the ids of messages that have none.
    of_messages: String,
}

/// The hashes of the records of a conversation, each with those before it: equal bytes have equal ids wherever they
/// lie, and the ids of messages stay when the source grows.
struct RecordHashes {
    layout: u64,
    all: Vec<u64>,
}

impl RecordHashes {
    fn new(layout: ChatLayout) -> Self {
        Self { layout: fnv(format!("{layout:?}").as_bytes()), all: Vec::new() }
    }

    fn add(&mut self, record: &Json) {
        let before = self.all.last().copied().unwrap_or(self.layout);
        self.all.push(fnv(format!("{before:016x}{record}").as_bytes()));
    }

    fn first(&self) -> u64 {
        self.all.first().copied().unwrap_or(self.layout)
    }

    /// Returns the id of a message at a place of the source.
    fn derived(&self, at: impl std::fmt::Display) -> String {
        format!("{:016x}:{at}", self.first())
    }

    fn into_id(self) -> ConversationId {
        let of_messages = format!("{:016x}", self.first());
        let mut ids = self.all.iter().rev().map(|hash| format!("{hash:016x}"));
        let of_session = ids.next().unwrap_or_else(|| of_messages.clone());
        ConversationId { of_session, earlier: ids.collect(), of_messages }
    }
}

/// The ids of the conversations of a file.
#[derive(Default)]
struct ConversationIds {
    /// The number of conversations before.
    place: usize,
    /// The number of conversations that have had each id of their own.
    seen: HashMap<String, usize>,
}

impl ConversationIds {
    /// Returns the id of a conversation: its own, numbered if an earlier one of the file has it; or else its place in
    /// the file with the hash of its records, so that conversations are sorted as they stand there.
    fn conversation(&mut self, own: Option<String>, layout: ChatLayout, records: &[Json]) -> ConversationId {
        self.place += 1;
        let Some(own) = own else {
            let mut hashes = RecordHashes::new(layout);
            records.iter().for_each(|record| hashes.add(record));
            let mut id = hashes.into_id();
            let place = format!("{:08}-", self.place);
            id.of_session.insert_str(0, &place);
            id.earlier.iter_mut().for_each(|earlier| earlier.insert_str(0, &place));
            return id;
        };
        let mut id = ConversationId { of_messages: own.clone(), of_session: own, earlier: Vec::new() };
        let count = self.seen.entry(id.of_session.clone()).or_default();
        *count += 1;
        if *count > 1 {
            id.of_session = format!("{}#{count}", id.of_session);
        }
        id
    }
}

/// Returns the messages of a conversation.
fn messages_of(of: &Json) -> &[Json] {
    json::items(if is_share_gpt(of) { &of["conversations"] } else { &of["messages"] })
}

/// Reads a conversation with its messages.
fn conversation(id: ConversationId, of: &Json, out: &mut ReadOutput<'_>, place: &str) -> Result<(), ImportError> {
    let mut chat = ChatMessages::default();
    let derived = |at: usize| format!("{}:{at}", id.of_messages);
    if is_share_gpt(of) {
        for (at, entry) in messages_of(of).iter().enumerate() {
            chat.entry(&derived(at), entry, out, &format!("{place}#{at}"))?;
        }
    } else if of["messages"].is_array() {
        for (at, message) in messages_of(of).iter().enumerate() {
            chat.message(&derived(at), message, out, &format!("{place}#{at}"))?;
        }
    } else {
        return out.unknown("record", place, of.to_string());
    }
    out.session(chat.into_session(id))
}

/// Returns the type of the messages of a role.
pub(crate) fn kind_of_role(role: &str) -> Option<DraftKind> {
    match role {
        "system" | "developer" => Some(DraftKind::System),
        "user" | "human" => Some(DraftKind::Human),
        "assistant" | "gpt" => Some(DraftKind::Ai),
        "tool" | "function" | "observation" => Some(DraftKind::Tool),
        _ => None,
    }
}

#[derive(Default)]
struct ChatMessages {
    arena: DraftArena,
    main: Vec<usize>,
    /// The ids of the newest calls that named none, which the next results answer, in their order.
    called: VecDeque<String>,
}

impl ChatMessages {
    fn into_session(self, id: ConversationId) -> SourceSession {
        let main = self.arena.settled(&self.main);
        let messages = self.arena.into_messages();
        let session = SourceSession::new(SourceKind::Chat, id.of_session, pick(&messages, &main));
        SourceSession { earlier_ids: id.earlier, ..session }
    }

    /// Gives the messages of a file as a session, unless there are none.
    fn give(self, id: ConversationId, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        if self.main.is_empty() { Ok(()) } else { out.session(self.into_session(id)) }
    }

    /// Returns the id of the call that a result answers which names none. The last one answers all further results.
    fn answered(&mut self) -> String {
        let last = self.called.len() == 1;
        let id = if last { self.called.front().cloned() } else { self.called.pop_front() };
        id.unwrap_or_default()
    }

    fn push(&mut self, draft: MessageDraft) {
        if draft.kind == DraftKind::Tool {
            self.arena.add_result(&mut self.main, draft);
        } else {
            let number = self.arena.add(draft);
            self.main.push(number);
        }
    }

    /// Takes a message in the format of the OpenAI interface.
    fn message(
        &mut self,
        derived: &str,
        message: &Json,
        out: &mut ReadOutput<'_>,
        place: &str,
    ) -> Result<(), ImportError> {
        if !is_message(message) {
            return out.unknown("record", place, message.to_string());
        }
        let role = json::text(message, "role");
        let Some(kind) = kind_of_role(role) else {
            return out.unknown(format!("role/{role}"), place, message.to_string());
        };
        let mut draft = MessageDraft::new(kind, derived.to_owned());
        draft.id = json::maybe_text(message, "id");
        draft.at = ["created_at", "timestamp"].into_iter().find_map(|name| json::time(&message[name]));
        if kind == DraftKind::Tool {
            draft.answers = json::maybe_text(message, "tool_call_id").unwrap_or_else(|| self.answered());
        }
        let unnamed = content(&mut draft, &message["content"]);
        if !unnamed.is_empty() {
            self.called = unnamed.into();
        }
        draft.report_lost(out, place)?;
        for call in json::items(&message["tool_calls"]) {
            let function = &call["function"];
            draft.call_of_text(
                json::text(call, "id"),
                json::text(function, "name"),
                &json::as_text(&function["arguments"]),
            );
        }
        if let call @ Json::Object(_) = &message["function_call"] {
            self.called = VecDeque::from([derived.to_owned()]);
            draft.call_of_text(derived, json::text(call, "name"), &json::as_text(&call["arguments"]));
        }
        self.push(draft);
        Ok(())
    }

    /// Takes an entry of ShareGPT.
    fn entry(&mut self, derived: &str, entry: &Json, out: &mut ReadOutput<'_>, place: &str) -> Result<(), ImportError> {
        let (role, value) = (json::text(entry, "from"), json::as_text(&entry["value"]));
        let mut draft = MessageDraft::new(DraftKind::Ai, derived.to_owned());
        if role == "function_call" {
            self.called = VecDeque::from([derived.to_owned()]);
            call_of_value(&mut draft, derived, &value);
        } else {
            let Some(kind) = kind_of_role(role) else {
                return out.unknown(format!("role/{role}"), place, entry.to_string());
            };
            draft.kind = kind;
            if kind == DraftKind::Tool {
                draft.answers = self.answered();
            }
            draft.text(&value);
        }
        self.push(draft);
        Ok(())
    }
}

/// Adds a call whose name and arguments are the text of a JSON object.
fn call_of_value(draft: &mut MessageDraft, id: &str, value: &str) {
    match json::parse(value) {
        Ok(call) if call["name"].is_string() => {
            draft.call_of_text(id, json::text(&call, "name"), &json::as_text(&call["arguments"]));
        }
        _ => draft.call(id, "", &json!(value)),
    }
}

/// Adds content: a text, or parts. Returns the ids that were given to its calls.
fn content(draft: &mut MessageDraft, content: &Json) -> Vec<String> {
    let mut called = Vec::new();
    match content {
        Json::String(text) => draft.text(text),
        Json::Array(parts) => {
            for part in parts {
                let name = if part["text"].is_string() || !part["value"].is_string() { "text" } else { "value" };
                match (json::text(part, "type"), part) {
                    ("text", part) => draft.text_in(part, name),
                    ("reasoning", part) => draft.reasoning_in(part, name),
                    ("tool_call", part) => match part[name].as_str() {
                        Some(value) => {
                            called.push(format!("{}#{}", draft.derived, called.len() + 1));
                            call_of_value(draft, &called[called.len() - 1], value);
                        }
                        None => draft.lose("tool_call", part),
                    },
                    ("image_url", part) => {
                        let url = &part["image_url"];
                        draft.image(url.as_str().unwrap_or_else(|| json::text(url, "url")));
                    }
                    (_, Json::String(text)) => draft.text(text),
                    (_, part) => draft.opaque(part),
                }
            }
        }
        Json::Null => {}
        other => draft.text(&other.to_string()),
    }
    called
}
