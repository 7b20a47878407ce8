//! Citations: the sources of a text of the model.
//!
//! *Absent:* looking the sources up.

use super::macros::{record, serde_impls, variants};
use super::wire::{Wire, WireReader, object_of};
use annals_base::{Map, Value};

record! {
    /// A web page (`WebSource`).
    pub struct WebSource {
        /// The URL of the page.
        pub url: String,
        /// Its title.
        pub title: Option<String>,
        /// Quotes from the source.
        pub excerpts: Vec<String> = |_| Some(Vec::new()),
    } [kind = "web"]
}

impl WebSource {
    /// Returns a page without a title or excerpts.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), title: None, excerpts: Vec::new() }
    }
}

record! {
    /// A document (`DocumentSource`), which has an id, a title or excerpts.
    pub struct DocumentSource {
        /// Its id.
        pub document_id: Option<String>,
        /// Its title.
        pub title: Option<String>,
        /// Quotes from the source.
        pub excerpts: Vec<String> = |_| Some(Vec::new()),
    } [kind = "document"]
    after check_document;
}

impl DocumentSource {
    /// Returns the document of an id, without a title or excerpts.
    pub fn new(document_id: impl Into<String>) -> Self {
        Self { document_id: Some(document_id.into()), title: None, excerpts: Vec::new() }
    }
}

fn check_document(source: &mut DocumentSource, _: &mut Map, reader: &mut WireReader<'_>) {
    let has = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    if !has(&source.document_id) && !has(&source.title) && source.excerpts.is_empty() {
        reader.fail::<()>("a document with an id, a title or excerpts", &source.write());
    }
}

variants! {
    /// The source of a statement (`CitationSource`).
    pub enum CitationSource by "kind" {
        /// A web page (`WebSource`).
        Web(WebSource) = "web",
        /// A document.
        Document(DocumentSource) = "document",
    }
}

/// The cited range of the text, in characters of its content (`CitationAnchor`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CitedRange {
    /// The first character.
    pub start: i64,
    /// The end: the first character behind the range.
    pub end: i64,
    /// True if the range is a marker, such as `[1]`, and not the cited statement.
    pub is_marker: bool,
}

impl CitedRange {
    /// Returns the anchor of the characters `start..end` of the content. `None` unless `0 <= start < end`.
    pub fn new(start: i64, end: i64) -> Option<Self> {
        (0 <= start && start < end).then_some(Self { start, end, is_marker: false })
    }
}

impl Wire for CitedRange {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        let is_marker = match value.get("kind").and_then(Value::as_str) {
            Some("content") => false,
            Some("marker") => true,
            _ => return reader.fail("an object whose kind is one of: content marker", &value),
        };
        let mut map = reader.object(value)?;
        let start = reader.field::<i64>(&mut map, &["start"], |_| None);
        let end = reader.field::<i64>(&mut map, &["end"], |_| None);
        let (start, end) = (start?, end?);
        if start < 0 || end <= start {
            return reader.fail("a range with 0 <= start < end", &Value::Map(map));
        }
        Some(Self { start, end, is_marker })
    }

    fn write(&self) -> Value {
        let kind = if self.is_marker { "marker" } else { "content" };
        let mut members = [("start", self.start.into()), ("end", self.end.into()), ("kind", kind.into())];
        Value::Map(object_of(&mut members))
    }
}

record! {
    /// A reference from a text to its sources (`Citation`).
    pub struct Citation {
        /// The sources; at least one.
        pub sources: Vec<CitationSource>,
        /// The cited range; `None` for the text as a whole.
        pub anchor: Option<CitedRange>,
    }
    after check_citation;
}

impl Citation {
    /// Returns a citation of the text as a whole. [`load`](crate::load) refuses one without a source.
    pub fn new(sources: Vec<CitationSource>) -> Self {
        Self { sources, anchor: None }
    }
}

fn check_citation(citation: &mut Citation, _: &mut Map, reader: &mut WireReader<'_>) {
    if citation.sources.is_empty() {
        reader.fail::<()>("a citation with at least one source", &citation.write());
    }
}

serde_impls!(CitedRange);
