//! Messages in the making: every reader fills a draft, which becomes a message of LangChain's shape.

use annals_base::{Map, Timestamp, Value};
use annals_messages::{Ai, Content, InvalidToolCall, Message, Role, Tool, ToolCall, ToolStatus, Usage};
use serde_json::{Value as Json, json};

use crate::error::ImportError;
use crate::json;
use crate::model::{JOINED, SessionMessage};
use crate::output::ReadOutput;

/// The entry of `additional_kwargs` with the timestamp of a message.
pub(crate) const TIMESTAMP: &str = "timestamp";

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DraftKind {
    Human,
    Ai,
    System,
    Tool,
}

/// A message in the making.
#[derive(Clone, Debug)]
pub(crate) struct MessageDraft {
    pub(crate) kind: DraftKind,
    /// The id of the source.
    pub(crate) id: Option<String>,
    /// The id if the source has none.
    pub(crate) derived: String,
    pub(crate) at: Option<Timestamp>,
    pub(crate) blocks: Vec<Json>,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) invalid: Vec<InvalidToolCall>,
    pub(crate) answers: String,
    pub(crate) is_error: bool,
    pub(crate) is_summary: bool,
    /// Of a summary: the id of the first message before it that the program went on with.
    pub(crate) first_retained: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) usage: Option<Usage>,
    pub(crate) error: Option<String>,
    /// Fields of the source without a counterpart.
    pub(crate) extra: Vec<(&'static str, Json)>,
    /// True if the record named a parent that its file does not hold.
    pub(crate) is_joined: bool,
    /// Parts whose text stands nowhere that is known, each with its type.
    lost: Vec<(String, Json)>,
}

impl MessageDraft {
    pub(crate) fn new(kind: DraftKind, derived: String) -> Self {
        Self {
            kind,
            id: None,
            derived,
            at: None,
            blocks: Vec::new(),
            calls: Vec::new(),
            invalid: Vec::new(),
            answers: String::new(),
            is_error: false,
            is_summary: false,
            first_retained: None,
            model: None,
            usage: None,
            error: None,
            extra: Vec::new(),
            is_joined: false,
            lost: Vec::new(),
        }
    }

    /// Returns the draft of a summary that a compaction left; none if it left no text.
    pub(crate) fn summary(derived: String, text: &str) -> Option<Self> {
        let mut draft = Self::new(DraftKind::System, derived);
        draft.is_summary = true;
        draft.text(text);
        Some(draft).filter(Self::has_text)
    }

    /// Returns the draft of the result of a tool call.
    pub(crate) fn result(derived: String, call: &str) -> Self {
        let mut draft = Self::new(DraftKind::Tool, derived);
        draft.answers = call.to_owned();
        draft
    }

    pub(crate) fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.blocks.push(json!({ "type": "text", "text": text }));
        }
    }

    pub(crate) fn reasoning(&mut self, text: &str) {
        if !text.is_empty() {
            self.blocks.push(json!({ "type": "reasoning", "reasoning": text }));
        }
    }

    /// Adds the text of a part, which stands in the member of this name.
    pub(crate) fn text_in(&mut self, part: &Json, name: &str) {
        match &part[name] {
            Json::String(text) => self.text(text),
            _ => self.lose_without(part, name),
        }
    }

    /// Adds the reasoning of a part, which stands in the member of this name.
    pub(crate) fn reasoning_in(&mut self, part: &Json, name: &str) {
        match &part[name] {
            Json::String(text) => self.reasoning(text),
            _ => self.lose_without(part, name),
        }
    }

    fn lose_without(&mut self, part: &Json, name: &str) {
        // A member that is null holds no text, so that none is lost.
        if part.get(name).is_none_or(|text| !text.is_null()) {
            self.lose(json::text(part, "type"), part);
        }
    }

    /// Adds a part whose text stands nowhere that is known, as it is.
    pub(crate) fn lose(&mut self, kind: &str, part: &Json) {
        self.opaque(part);
        self.lost.push((kind.to_owned(), part.clone()));
    }

    /// Reports the parts whose text was lost.
    pub(crate) fn report_lost(&mut self, out: &mut ReadOutput<'_>, place: &str) -> Result<(), ImportError> {
        for (at, (kind, part)) in self.lost.drain(..).enumerate() {
            out.unknown(format!("part/{kind}"), format!("{place}#part {at}"), part.to_string())?;
        }
        Ok(())
    }

    /// Adds a picture by its address. The bytes of an address with the scheme `data` are a Base64 block.
    pub(crate) fn image(&mut self, url: &str) {
        self.blocks.push(located("image", url, None));
    }

    pub(crate) fn image_base64(&mut self, mime: &str, data: &str) {
        self.blocks.push(json!({ "type": "image", "base64": data, "mime_type": mime }));
    }

    /// Adds a file: a picture if its type says so.
    pub(crate) fn file(&mut self, mime: &str, url: &str, name: &str) {
        let kind = if mime.starts_with("image/") { "image" } else { "file" };
        let mut block = located(kind, url, Some(mime).filter(|mime| !mime.is_empty()));
        if !name.is_empty() {
            block["extras"] = json!({ "filename": name });
        }
        self.blocks.push(block);
    }

    /// Adds a block that only the source understands.
    pub(crate) fn opaque(&mut self, block: &Json) {
        self.blocks.push(json!({ "type": "non_standard", "value": block }));
    }

    /// Adds a tool call: an invalid one unless the arguments are an object.
    pub(crate) fn call(&mut self, id: &str, name: &str, args: &Json) {
        match json::map(args) {
            Some(args) => self.push_call(id, name, args),
            None => {
                let id = Some(id).filter(|id| !id.is_empty()).map(str::to_owned);
                self.invalid_call(id, Some(name), &json::as_text(args), "the arguments are not a JSON object");
            }
        }
    }

    fn push_call(&mut self, id: &str, name: &str, args: Map) {
        let mut call = ToolCall::new(name, args);
        call.id = Some(id).filter(|id| !id.is_empty()).map(str::to_owned);
        self.calls.push(call);
    }

    /// Adds a tool call whose arguments are the text of a JSON object.
    pub(crate) fn call_of_text(&mut self, id: &str, name: &str, args: &str) {
        match json::parse(args) {
            Ok(object @ Json::Object(_)) => self.call(id, name, &object),
            _ => self.call(id, name, &Json::String(args.to_owned())),
        }
    }

    pub(crate) fn invalid_call(&mut self, id: Option<String>, name: Option<&str>, args: &str, error: &str) {
        let mut call = InvalidToolCall::new(error);
        (call.id, call.name, call.args) = (id, name.map(str::to_owned), Some(args.to_owned()));
        self.invalid.push(call);
    }

    pub(crate) fn has_text(&self) -> bool {
        self.blocks.iter().any(|block| block["type"] == "text")
    }

    pub(crate) fn has_calls(&self) -> bool {
        !self.calls.is_empty() || !self.invalid.is_empty()
    }

    /// Returns the ids of the tool calls.
    pub(crate) fn call_ids(&self) -> impl Iterator<Item = &str> {
        let invalid = self.invalid.iter().filter_map(|call| call.id.as_deref());
        self.calls.iter().filter_map(|call| call.id.as_deref()).chain(invalid)
    }

    pub(crate) fn has_call(&self, id: &str) -> bool {
        self.call_ids().any(|call| call == id)
    }

    /// Returns the message.
    pub(crate) fn into_message(self) -> SessionMessage {
        let content = match self.blocks.as_slice() {
            [] => Content::Text(String::new()),
            [one] if one["type"] == "text" => Content::Text(json::text(one, "text").to_owned()),
            blocks => Content::Blocks(blocks.iter().cloned().map(json::value).collect()),
        };
        let role = match self.kind {
            DraftKind::Human => Role::Human,
            DraftKind::System => Role::System,
            DraftKind::Tool => {
                let mut tool = Tool::new(self.answers);
                tool.status = if self.is_error { ToolStatus::Error } else { ToolStatus::Success };
                tool.into()
            }
            DraftKind::Ai => {
                let mut ai = Ai::default();
                (ai.tool_calls, ai.invalid_tool_calls) = (self.calls, self.invalid);
                ai.usage = self.usage.map(Box::new);
                ai.into()
            }
        };
        let mut message = Message::new(role, content);
        let has_derived_id = self.id.is_none();
        message.id = Some(self.id.unwrap_or(self.derived));
        let mut put = |name: &str, value: Value| message.additional_kwargs.insert(name.to_owned(), value);
        if self.is_summary {
            put("summary", true.into());
        }
        if self.is_joined {
            put(JOINED, true.into());
        }
        if let Some(at) = self.at {
            put(TIMESTAMP, at.to_string().into());
        }
        for (name, value) in self.extra {
            put(name, json::value(value));
        }
        let metadata: Map = [("model_name", self.model), ("error", self.error)]
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), Value::from(value?))))
            .collect();
        message.response_metadata = metadata;
        SessionMessage { message, at: self.at, has_derived_id, first_retained: self.first_retained }
    }
}

/// Gives the messages of one record their ids and reports the parts of which a text was lost: the first has the id of
/// the record, and the others that id with their ordinal.
pub(crate) fn number(
    drafts: &mut [MessageDraft],
    id: Option<&str>,
    derived: &str,
    out: &mut ReadOutput<'_>,
    place: &str,
) -> Result<(), ImportError> {
    for (ordinal, draft) in drafts.iter_mut().enumerate() {
        let numbered = |id: &str| if ordinal == 0 { id.to_owned() } else { format!("{id}#{}", ordinal + 1) };
        draft.id = id.filter(|id| !id.is_empty()).map(numbered);
        draft.derived = numbered(derived);
        draft.report_lost(out, place)?;
    }
    Ok(())
}

/// Returns a block of an address, or of the bytes that the address holds.
fn located(kind: &str, url: &str, mime: Option<&str>) -> Json {
    let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let mut block = match inline {
        Some((_, data)) => json!({ "type": kind, "base64": data }),
        None => json!({ "type": kind, "url": url }),
    };
    if let Some(mime) = mime.or(inline.map(|(mime, _)| mime)).filter(|mime| !mime.is_empty()) {
        block["mime_type"] = json!(mime);
    }
    block
}

/// Token counts in the way of the OpenAI interface or the Anthropic one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TokenCounts {
    /// Everything that was sent, cached or not.
    pub(crate) input: i64,
    /// Everything that the model wrote, reasoning included.
    pub(crate) output: i64,
    pub(crate) cache_read: i64,
    pub(crate) cache_creation: i64,
    pub(crate) reasoning: i64,
}

impl TokenCounts {
    /// Returns Anthropic's counters, which exclude the cache from the input.
    pub(crate) fn anthropic(of: &Json) -> Self {
        let (read, creation) =
            (json::count(of, "cache_read_input_tokens"), json::count(of, "cache_creation_input_tokens"));
        let input = json::count(of, "input_tokens").saturating_add(read).saturating_add(creation);
        let output = json::count(of, "output_tokens");
        Self { input, output, cache_read: read, cache_creation: creation, reasoning: 0 }
    }

    pub(crate) fn into_usage(self) -> Usage {
        let mut usage = Usage::new(self.input, self.output);
        let details = |names: [(&str, i64); 2]| {
            let nonzero = names.into_iter().filter(|(_, count)| *count != 0);
            let map: Map = nonzero.map(|(name, count)| (name.to_owned(), Value::Int(count))).collect();
            Some(map).filter(|map| !map.is_empty())
        };
        usage.input_token_details = details([("cache_read", self.cache_read), ("cache_creation", self.cache_creation)]);
        usage.output_token_details = details([("reasoning", self.reasoning), ("", 0)]);
        usage
    }
}
