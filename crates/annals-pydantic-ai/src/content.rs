//! The content of user prompts: a text, or items of several kinds.
//!
//! *Absent:* functions of the user that render structured content.

use super::file::File;
use super::macros::{record, serde_impls, words};
use super::value_xml::value_xml;
use super::wire::{Wire, WireReader};
use annals_base::{Map, Value};
use annals_messages::internal::{JsonStyle, json_write};

/// The content of a user prompt (`str | Sequence[UserContent]`).
#[derive(Clone, Debug, PartialEq)]
pub enum UserContent {
    /// A text.
    Text(String),
    /// Items in order.
    Items(Vec<UserItem>),
}

impl From<String> for UserContent {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for UserContent {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Wire for UserContent {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        match value {
            Value::Str(text) => Some(Self::Text(text)),
            Value::List(_) => reader.one_place(|reader| Vec::read(value, reader)).map(Self::Items),
            other => reader.fail("a text or a list", &other),
        }
    }

    fn write(&self) -> Value {
        match self {
            Self::Text(text) => text.write(),
            Self::Items(items) => items.write(),
        }
    }
}

/// One item of a user prompt (`UserContent`).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum UserItem {
    /// A bare text.
    Text(String),
    /// A file.
    File(File),
    /// A text with metadata (`TextContent`).
    TextContent(TextContent),
    /// A value that is rendered as text (`StructuredContent`).
    Structured(StructuredContent),
    /// The provider may cache the items before this one (`CachePoint`).
    CachePoint(CachePoint),
}

record! {
    /// A text with metadata (`TextContent`).
    pub struct TextContent {
        /// The text.
        pub content: String,
        /// Not sent to the model.
        pub metadata: Value,
    } [kind = "text-content"]
}

impl TextContent {
    /// Returns a text with null as its metadata.
    pub fn new(content: impl Into<String>) -> Self {
        Self { content: content.into(), metadata: Value::Null }
    }
}

record! {
    /// A value that the model sees as text (`StructuredContent`).
    pub struct StructuredContent {
        /// The text; rendered from the value if it is empty.
        pub content: String = |_| Some(String::new()),
        /// Not sent to the model.
        pub metadata: Value,
    } [kind = "structured-content"] {
        /// The value.
        pub value: Value = |_| None,
        /// The tag around the text.
        pub tag: Option<String>,
        /// A line before the rendered text.
        pub description: Option<String>,
    }
    after render;
}

impl StructuredContent {
    /// Returns the value rendered as compact JSON, without a tag or a description.
    pub fn new(value: Value) -> Self {
        let mut item = Self { content: String::new(), metadata: Value::Null, value, tag: None, description: None };
        item.content = tagged_json(&item);
        item
    }
}

words! {
    /// The time to live of cached items.
    pub enum CacheTtl = FiveMinutes {
        /// Five minutes.
        FiveMinutes = "5m",
        /// An hour.
        OneHour = "1h",
    }
}

record! {
    /// The provider may cache the items before this one (`CachePoint`).
    #[derive(Default)]
    pub struct CachePoint {} [kind = "cache-point"] {
        /// The time to live.
        pub ttl: CacheTtl,
    }
}

impl CachePoint {
    /// Returns a cache point with this time to live.
    pub fn new(ttl: CacheTtl) -> Self {
        Self { ttl }
    }
}

/// Tags with which the framework itself frames texts.
const FRAMING: [&str; 8] = [
    "system",
    "tool_result",
    "assistant_thinking",
    "context",
    "context_diff",
    "validation_errors",
    "retry_feedback",
    "conversation_summary",
];

/// Renders a structured content that has no text: its value in the tag, after the description. The member `format` says
/// whether as compact JSON that cannot close a tag, or as XML.
fn render(item: &mut StructuredContent, map: &mut Map, reader: &mut WireReader<'_>) {
    let format = map.get("format").unwrap_or(&Value::Null);
    let as_xml = match format.as_str() {
        Some("xml") => true,
        _ if format.is_null() || format.as_str() == Some("json") => false,
        _ => {
            reader.fail::<()>("a structured content whose format is one of: json xml", format);
            return;
        }
    };
    if !item.content.is_empty() {
        return;
    }
    if let Some(tag) = &item.tag {
        let first = tag.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        let snake = tag.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        if !first || !snake || FRAMING.contains(&tag.as_str()) {
            reader.fail::<()>("a tag in lower snake case that the framework does not reserve", &tag.as_str().into());
            return;
        }
    }
    let text = if as_xml { value_xml(&item.value, item.tag.as_deref()) } else { tagged_json(item) };
    item.content = item.description.as_ref().map_or(text.clone(), |description| format!("{description}\n{text}"));
    if item.content.is_empty() {
        reader.fail::<()>("a value whose XML is not empty", &item.value);
    }
}

fn tagged_json(item: &StructuredContent) -> String {
    let text = json_write(&item.value, JsonStyle::PYDANTIC);
    let text = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    item.tag.as_ref().map_or(text.clone(), |tag| format!("<{tag}>{text}</{tag}>"))
}

/// An object without `kind` is structured content if it has a value, a text if it has a content, and else, as in the
/// reference, a cache point.
fn read_unnamed(value: Value, reader: &mut WireReader<'_>) -> Option<UserItem> {
    if value.get("value").is_some()
        && let Some(item) = reader.attempt(|reader| StructuredContent::read(value.clone(), reader))
    {
        return Some(UserItem::Structured(item));
    }
    let text = reader.attempt(|reader| TextContent::read(value.clone(), reader));
    match text {
        Some(item) => Some(UserItem::TextContent(item)),
        None => CachePoint::read(value, reader).map(UserItem::CachePoint),
    }
}

impl Wire for UserItem {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        let Value::Map(map) = &value else {
            return match value {
                Value::Str(text) => Some(Self::Text(text)),
                other => reader.fail("a text or an object", &other),
            };
        };
        match map.get("kind").map(Value::as_str) {
            None => read_unnamed(value, reader),
            Some(Some("text-content")) => TextContent::read(value, reader).map(Self::TextContent),
            Some(Some("structured-content")) => StructuredContent::read(value, reader).map(Self::Structured),
            Some(Some("cache-point")) => CachePoint::read(value, reader).map(Self::CachePoint),
            Some(_) => File::read(value, reader).map(Self::File),
        }
    }

    fn write(&self) -> Value {
        match self {
            Self::Text(text) => text.write(),
            Self::File(file) => file.write(),
            Self::TextContent(item) => item.write(),
            Self::Structured(item) => item.write(),
            Self::CachePoint(item) => item.write(),
        }
    }
}

impl From<&str> for UserItem {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

serde_impls!(UserContent, UserItem);
