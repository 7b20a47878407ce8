//! Messages of LangChain as requests, and which of them belong together.
//!
//! *Absent:* validation; the resulting document is loaded as any other.

use std::collections::BTreeMap;

use super::block_in::{tool_content, user_content};
use super::block_out::python_json;
use super::{KEY, member, object, response_in};
use annals_base::DefaultSource;
use annals_base::{Map, Value};

/// The dictionaries of the messages from which one was made; none if it came from PydanticAI.
type Originals = Option<Vec<Map>>;

/// Builds a history from messages.
pub(super) struct HistoryBuilder<'a, 'f> {
    defaults: &'a mut DefaultSource<'f>,
    now: Value,
    out: Vec<(Map, Originals)>,
    /// The marks of the messages from which they are made.
    marks: Vec<bool>,
    /// True while the last message is a request that takes more parts.
    open: bool,
    /// The tools of the calls so far, by the ids of the calls.
    names: BTreeMap<String, String>,
    /// Finds the tool of a call before them.
    tool_of: &'a dyn Fn(&str) -> Option<String>,
}

/// Returns the tool of the call with this id, if the message makes it.
pub(super) fn tool_of(map: &Map, id: &str) -> Option<String> {
    let calls = matches!(member(map, "type").as_str(), Some("ai" | "AIMessageChunk"));
    let envelope = member(map, "additional_kwargs").get(KEY).and_then(Value::as_map);
    let response = calls.then(|| response_in::response(map, envelope, &Value::Null))?;
    response_in::calls(&response).filter(|(known, _)| known == id).last().map(|(_, name)| name)
}

/// The fields of a request that its envelope may hold.
const HEAD: [&str; 6] = ["timestamp", "instructions", "run_id", "conversation_id", "metadata", "state"];

impl<'a, 'f> HistoryBuilder<'a, 'f> {
    pub(super) fn new(
        now: Value,
        defaults: &'a mut DefaultSource<'f>,
        tool_of: &'a dyn Fn(&str) -> Option<String>,
    ) -> Self {
        Self { defaults, now, out: Vec::new(), marks: Vec::new(), open: false, names: BTreeMap::new(), tool_of }
    }

    /// Adds a message, as a dictionary without defaults. One with another mark than the last begins a request of its
    /// own, if it is of one.
    pub(super) fn push(&mut self, mark: bool, map: Map) {
        self.open &= self.marks.last() == Some(&mark);
        self.push_unmarked(map);
        debug_assert!(self.marks.len() <= self.out.len(), "messages are added, never taken away");
        self.marks.resize(self.out.len(), mark);
    }

    fn push_unmarked(&mut self, map: Map) {
        let envelope = member(&map, "additional_kwargs").get(KEY).and_then(Value::as_map);
        let envelope = envelope.filter(|envelope| !envelope.is_empty()).cloned();
        if envelope.as_ref().is_some_and(|envelope| member(envelope, "role").as_str() == Some("instructions")) {
            return;
        }
        if matches!(member(&map, "type").as_str(), Some("ai" | "AIMessageChunk")) {
            self.open = false;
            let response = response_in::response(&map, envelope.as_ref(), &self.now);
            self.names.extend(response_in::calls(&response));
            self.out.push((response, envelope.is_none().then(|| vec![map])));
            return;
        }
        self.push_request(map, envelope);
    }

    fn push_request(&mut self, map: Map, envelope: Option<Map>) {
        let last_is_foreign = self.out.last().is_some_and(|(_, originals)| originals.is_some());
        let goes_on = match &envelope {
            // A foreign message never joins a request that came from PydanticAI.
            None => last_is_foreign,
            Some(envelope) => !envelope.contains_key("request") && envelope.contains_key("cont"),
        };
        if !self.open || !goes_on {
            let mut request = object([("parts", Value::List(Vec::new())), ("kind", "request".into())]);
            let head = envelope.as_ref().and_then(|envelope| member(envelope, "request").as_map());
            let head = head.into_iter().flatten().filter(|(name, _)| HEAD.contains(&name.as_str()));
            request.extend(head.map(|(name, value)| (name.clone(), value.clone())));
            self.out.push((request, envelope.is_none().then(Vec::new)));
            self.open = true;
        }
        let mut parts = Vec::new();
        let hidden = |name| envelope.as_ref().and_then(|e| member(e, name).as_list()).unwrap_or_default().to_vec();
        parts.extend(hidden("before"));
        parts.extend(self.part(&map, envelope.as_ref()));
        parts.extend(hidden("after"));
        let Some((request, originals)) = self.out.last_mut() else { return };
        if let Some(Value::List(before)) = request.get_mut("parts") {
            before.extend(parts);
        }
        if let (None, Some(originals)) = (envelope, originals) {
            originals.push(map);
        }
    }

    /// Returns the part that a message stands for; `None` for a message that only carries hidden parts.
    fn part(&mut self, map: &Map, envelope: Option<&Map>) -> Option<Value> {
        let none = Map::new();
        let foreign = envelope.is_none();
        let envelope = envelope.unwrap_or(&none);
        if envelope.get("part").is_some_and(Value::is_null) {
            return None;
        }
        if let Some(raw) = envelope.get("raw") {
            return Some(raw.clone());
        }
        let timestamp = envelope.get("timestamp").unwrap_or(&self.now).clone();
        let kind = member(map, "type").as_str().unwrap_or_default();
        let speaks_as_system = matches!(member(map, "role").as_str(), Some("system" | "developer"));
        let part = match kind {
            "system" | "SystemMessageChunk" => system_part(map, envelope, timestamp),
            "chat" if speaks_as_system => system_part(map, envelope, timestamp),
            "tool" | "ToolMessageChunk" | "function" => self.tool_part(map, envelope, timestamp, foreign),
            _ => object([
                ("content", user_content(member(map, "content"))),
                ("timestamp", timestamp),
                ("part_kind", "user-prompt".into()),
            ]),
        };
        Some(part.into())
    }

    fn tool_part(&mut self, map: &Map, envelope: &Map, timestamp: Value, foreign: bool) -> Map {
        let failed = member(map, "status").as_str() == Some("error");
        let outcome = Value::from(if failed { "failed" } else { "success" });
        let id = member(map, "tool_call_id").as_str().unwrap_or_default();
        // Of a message that came from PydanticAI, an empty name is a name.
        let name = member(map, "name").as_str().filter(|name| !foreign || !name.is_empty());
        let name = name.map(str::to_owned).or_else(|| self.names.get(id).cloned()).or_else(|| (self.tool_of)(id));
        let (content, found) = match envelope.get("content") {
            Some(content) => (content.clone(), Vec::new()),
            None => tool_content(member(map, "content"), self.defaults),
        };
        let recorded = envelope.get("content_file_digests").cloned();
        let digests = recorded.unwrap_or_else(|| if foreign { found.into() } else { Value::List(Vec::new()) });
        object([
            ("tool_name", name.unwrap_or_else(|| "unknown".into()).into()),
            ("content", content),
            ("tool_call_id", id.into()),
            ("tool_kind", member(envelope, "tool_kind").clone()),
            ("metadata", member(map, "artifact").clone()),
            ("timestamp", timestamp),
            ("outcome", envelope.get("outcome").cloned().unwrap_or(outcome)),
            ("retry", member(envelope, "retry").clone()),
            ("part_kind", "tool-return".into()),
            ("content_file_digests", digests),
        ])
    }

    /// Returns the marks and the forms of the history, and from which messages each was made.
    pub(super) fn finish(self) -> (Vec<bool>, Vec<Value>, Vec<Originals>) {
        let (forms, originals) = self.out.into_iter().map(|(map, originals)| (Value::Map(map), originals)).unzip();
        (self.marks, forms, originals)
    }
}

fn system_part(map: &Map, envelope: &Map, timestamp: Value) -> Map {
    let content = match member(map, "content") {
        Value::List(blocks) => {
            let text = |block: &Value| match (block, block.get("text").and_then(Value::as_str)) {
                (Value::Str(text), _) => text.clone(),
                (_, Some(text)) => text.to_owned(),
                (block, None) => python_json(block),
            };
            blocks.iter().map(text).collect::<Vec<_>>().join("\n\n").into()
        }
        other => other.clone(),
    };
    object([
        ("content", content),
        ("timestamp", timestamp),
        ("dynamic_ref", member(envelope, "dynamic_ref").clone()),
        ("context_id", member(envelope, "context_id").clone()),
        ("scope", envelope.get("scope").cloned().unwrap_or_else(|| "conversation".into())),
        ("metadata", member(envelope, "metadata").clone()),
        ("part_kind", "system-prompt".into()),
    ])
}
