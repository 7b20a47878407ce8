//! The content of a tool's result: any JSON value, in which some objects are files.
//!
//! A file is rebuilt when it is bytes, or when the record of the part (`content_file_digests`) names it; without a
//! record, as in older documents, a URL of the web is. Any other object that looks like a file stays data: the result
//! of a tool must not make an adapter fetch a URL. *Absent:* the text for a model, which `tool_text.rs` writes.

use super::file::{File, ForceDownload, digest};
use super::macros::serde_impls;
use super::mime;
use super::wire::{Wire, WireReader};
use annals_base::{Map, Value};

/// The content of a tool's result (`ToolReturnContent`).
#[derive(Clone, Debug, PartialEq)]
pub enum ToolContent {
    /// Null, a boolean, a number or a text.
    Scalar(Value),
    /// A list.
    List(Vec<ToolContent>),
    /// An object.
    Map(indexmap::IndexMap<String, ToolContent>),
    /// A file.
    File(File),
}

impl ToolContent {
    /// Returns a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Scalar(Value::Str(text.into()))
    }

    /// Returns the value as data: nothing in it is a file.
    pub fn data(value: Value) -> Self {
        match value {
            Value::List(items) => Self::List(items.into_iter().map(Self::data).collect()),
            Value::Map(map) => Self::Map(map.into_iter().map(|(name, value)| (name, Self::data(value))).collect()),
            other => Self::Scalar(other),
        }
    }

    /// Returns the value as JSON.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Scalar(value) => value.clone(),
            Self::List(items) => Value::List(items.iter().map(Self::to_value).collect()),
            Self::Map(map) => Value::Map(map.iter().map(|(name, item)| (name.clone(), item.to_value())).collect()),
            Self::File(file) => file.to_value(),
        }
    }

    /// Returns the record of the files in the content: the digests of those that are not bytes, sorted, each once.
    /// `None` for a scalar, whose part has no record.
    pub(crate) fn digests(&self) -> Option<Vec<String>> {
        if let Self::Scalar(_) = self {
            return None;
        }
        let mut found = std::collections::BTreeSet::new();
        self.collect(&mut found);
        Some(found.into_iter().collect())
    }

    fn collect(&self, found: &mut std::collections::BTreeSet<String>) {
        match self {
            Self::Scalar(_) => {}
            Self::List(items) => items.iter().for_each(|item| item.collect(found)),
            Self::Map(map) => map.values().for_each(|item| item.collect(found)),
            Self::File(file) => found.extend(file.digest()),
        }
    }

    /// Reads the content with the record of its part, if that has one.
    pub(super) fn recorded(value: Value, record: Option<&[String]>, reader: &mut WireReader<'_>) -> Self {
        if let Some(file) = file(&value, record, reader) {
            return Self::File(file);
        }
        match value {
            Value::List(items) => {
                Self::List(items.into_iter().map(|item| Self::recorded(item, record, reader)).collect())
            }
            Value::Map(map) => {
                Self::Map(map.into_iter().map(|(name, value)| (name, Self::recorded(value, record, reader))).collect())
            }
            other => Self::Scalar(other),
        }
    }
}

/// As in a part without a record: what older documents hold.
impl Wire for ToolContent {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        Some(Self::recorded(value, None, reader))
    }

    fn write(&self) -> Value {
        self.to_value()
    }
}

/// Returns the file that the object is, if its part vouches for it.
fn file(value: &Value, record: Option<&[String]>, reader: &mut WireReader<'_>) -> Option<File> {
    let map = value.as_map()?;
    let kind = map.get("kind")?.as_str()?;
    if kind == "binary" {
        return File::attempt(value, reader);
    }
    let typed = match map.get("media_type")? {
        Value::Null => true,
        Value::Str(text) => !text.is_empty(),
        _ => false,
    };
    if !typed {
        return None;
    }
    if let Some(record) = record {
        // The record names the object as it was dumped.
        if !record.contains(&digest(value)) {
            return None;
        }
        let file = File::attempt(value, reader)?;
        let form = file.to_value();
        return Some(file).filter(|_| map.keys().all(|name| form.get(name).is_some()));
    }
    let web = matches!(mime::scheme(map.get("url")?.as_str()?).as_str(), "http" | "https");
    if !web || kind == "uploaded-file" {
        return None;
    }
    let mut plain = map.clone();
    plain.shift_remove("force_download");
    match File::attempt(&Value::Map(plain), reader)? {
        File::Url(mut url) => {
            url.force_download = ForceDownload::No;
            Some(File::Url(url))
        }
        _ => None,
    }
}

/// Takes the record out of a part. A value that is not a list counts as an absent record.
pub(super) fn take_record(map: &mut Map, reader: &mut WireReader<'_>) -> Option<Option<Vec<String>>> {
    match map.shift_remove("content_file_digests") {
        Some(Value::List(items)) => {
            let texts = items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
            let value = Value::List(items);
            texts.map(Some).or_else(|| reader.fail("a part whose content_file_digests are texts", &value))
        }
        _ => Some(None),
    }
}

serde_impls!(ToolContent);
