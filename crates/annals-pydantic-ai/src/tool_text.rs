//! The result of a tool as a model sees it: text for most providers, an object for some, files beside both.
//!
//! *Absent:* the wire format of any provider.

use super::content::UserItem;
use super::file::File;
use super::tool::{NativeToolReturnPart, ToolOutcome, ToolReturnPart};
use super::tool_content::ToolContent;
use annals_base::{Map, Value};
use annals_messages::internal::{JsonStyle, json_loads, json_write};

impl ToolContent {
    /// Returns the items at the top: those of a list, or the content itself.
    fn items(&self) -> &[ToolContent] {
        match self {
            Self::List(items) => items,
            other => std::slice::from_ref(other),
        }
    }

    /// Returns the files at the top.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.items().iter().filter_map(|item| match item {
            Self::File(file) => Some(file),
            _ => None,
        })
    }

    /// Returns a list or an object as a value. A text is parsed first: some transports send results as JSON texts.
    fn structured(&self) -> Option<Value> {
        match self {
            Self::Scalar(Value::Str(text)) => {
                json_loads(text, true).ok().filter(|value| matches!(value, Value::List(_) | Value::Map(_)))
            }
            Self::List(_) | Self::Map(_) => Some(self.to_value()),
            Self::Scalar(_) | Self::File(_) => None,
        }
    }

    /// Returns the content without the files at the top. A list that loses files to one item becomes the item, and an
    /// empty list is null.
    fn plain(&self) -> Value {
        let mut rest: Vec<Value> =
            self.items().iter().filter(|item| !matches!(item, Self::File(_))).map(Self::to_value).collect();
        let is_list = matches!(self, Self::List(_));
        let had_files = self.files().next().is_some();
        match rest.len() {
            0 => Value::Null,
            1 if !is_list || had_files => rest.remove(0),
            _ => Value::List(rest),
        }
    }
}

/// The content and the outcome of a call.
struct ResultView<'a> {
    content: &'a ToolContent,
    /// The outcome, if errors are wrapped.
    error: Option<ToolOutcome>,
}

fn compact(value: &Value) -> String {
    json_write(value, JsonStyle::PYDANTIC)
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Str(text) => text.clone(),
        other => compact(other),
    }
}

fn object(name: &str, value: Value) -> Map {
    Map::from_iter([(name.to_owned(), value)])
}

impl<'a> ResultView<'a> {
    fn new(content: &'a ToolContent, outcome: ToolOutcome, wrap_error: bool) -> Self {
        Self { content, error: Some(outcome).filter(|outcome| wrap_error && outcome.is_error()) }
    }

    /// Returns the error as an object, if the call ended with one.
    fn error(&self) -> Option<Map> {
        let plain = self.content.plain();
        let error = match (self.error?, &plain) {
            (ToolOutcome::Retried, value) if !matches!(value, Value::Null | Value::Str(_)) => plain,
            (_, value) => text(value).into(),
        };
        Some(object("error", error))
    }

    fn text(&self) -> String {
        match self.error() {
            Some(error) => compact(&error.into()),
            None => text(&self.content.plain()),
        }
    }

    fn object(&self) -> Map {
        self.error().unwrap_or_else(|| match self.content.plain() {
            Value::Null => Map::new(),
            Value::Map(map) => map,
            other => object("return_value", other),
        })
    }

    fn text_and_files(&self, tool_name: &str, tool_call_id: &str) -> (String, Vec<UserItem>) {
        let mut items = Vec::new();
        for file in self.content.files() {
            let attributes = [("tool_name", tool_name), ("tool_call_id", tool_call_id), ("file_id", file.identifier())]
                .map(|(name, value)| format!(" {name}=\"{}\"", escape(value)));
            items.push(UserItem::Text(format!("<pyai:tool_result{}>", attributes.concat())));
            items.push(UserItem::File(file.clone()));
            items.push(UserItem::Text("</pyai:tool_result>".into()));
        }
        if items.is_empty() {
            return (self.text(), items);
        }
        let see = |file: &File| Value::from(format!("See file {}.", file.identifier()));
        let shown: Vec<Value> = match self.error() {
            Some(error) => [Value::Map(error)].into_iter().chain(self.content.files().map(see)).collect(),
            None => {
                let shown = |item: &ToolContent| match item {
                    ToolContent::File(file) => see(file),
                    ToolContent::Scalar(text @ Value::Str(_)) => text.clone(),
                    other => compact(&other.to_value()).into(),
                };
                self.content.items().iter().map(shown).collect()
            }
        };
        match (&shown[..], self.content) {
            ([Value::Str(text)], ToolContent::File(_)) => (text.clone(), items),
            _ => (compact(&Value::List(shown)), items),
        }
    }
}

/// Writes a text so that it can stand in an attribute.
fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#x27;")
}

macro_rules! shown {
    ($type:ty) => {
        impl $type {
            /// Returns the content as text (`model_response_str`): a text as it is, null as nothing, anything else as
            /// compact JSON; with `wrap_error`, that of a failed call as `{"error": ..}`. Files at the top are left
            /// out.
            pub fn text(&self, wrap_error: bool) -> String {
                ResultView::new(&self.content, self.outcome, wrap_error).text()
            }

            /// Returns the content as an object (`model_response_object`): any other value becomes `{"return_value":
            /// ..}`.
            pub fn object(&self, wrap_error: bool) -> Map {
                ResultView::new(&self.content, self.outcome, wrap_error).object()
            }

            /// Returns the content as text that refers to the files at the top by their names, and the files between
            /// tags that tell where they come from, to be shown as words of the user
            /// (`model_response_str_and_user_content`).
            pub fn text_and_files(&self, wrap_error: bool) -> (String, Vec<UserItem>) {
                let shown = ResultView::new(&self.content, self.outcome, wrap_error);
                shown.text_and_files(&self.tool_name, &self.tool_call_id)
            }

            /// Returns the content if it is a list or an object, or the JSON text of one (`structured_content`).
            pub fn structured_content(&self) -> Option<Value> {
                self.content.structured()
            }
        }
    };
}
shown!(ToolReturnPart);
shown!(NativeToolReturnPart);

#[cfg(test)]
mod tests {
    use annals_base::Timestamp;
    use serde_json::json;

    use super::*;

    /// The results are those of pydantic-ai 2.68, which parses a text with `pydantic_core.from_json`.
    #[test]
    fn structured_content_parses_a_json_text() {
        let returned = |content: ToolContent| {
            let part = json!({"tool_name": "f", "content": null, "tool_call_id": "c"});
            let mut part: ToolReturnPart = Value::from(part).to().unwrap();
            part.timestamp = Timestamp::default().into();
            part.content = content;
            part.structured_content()
        };
        for (text, parsed) in [
            (r#"{"a": 1, "b": [true]}"#, Some(json!({"a": 1, "b": [true]}))),
            (" [1, \"b\"] ", Some(json!([1, "b"]))),
            (r#"{"a": 1, "a": 2}"#, Some(json!({"a": 2}))),
            ("[]", Some(json!([]))),
            ("{}", Some(json!({}))),
            ("5", None),
            ("\"x\"", None),
            ("null", None),
            ("true", None),
            ("plain", None),
            ("[1", None),
            ("", None),
        ] {
            assert_eq!(returned(ToolContent::text(text)), parsed.map(Value::from), "{text:?}");
        }
        let list = Value::from(json!([1, "[2]"]));
        assert_eq!(returned(ToolContent::data(list.clone())), Some(list));
        assert_eq!(returned(ToolContent::data(Value::Null)), None);
        assert_eq!(returned(ToolContent::data(Value::Int(5))), None);
        let not_finite = returned(ToolContent::text("[NaN]")).unwrap();
        assert!(matches!(not_finite.as_list(), Some([Value::Float(x)]) if x.is_nan()), "{not_finite:?}");
    }
}
