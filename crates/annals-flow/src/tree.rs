//! A TOML or JSON document with the place of every value. *Absent:* the meaning of keys.

use std::ops::Range;

use annals_graph::annals::base::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::limits::DEPTH_MAX;
use crate::problem::FlowProblem;

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct FileValue {
    pub(crate) span: Range<usize>,
    pub(crate) kind: ValueKind,
}

/// The kinds of values.
#[derive(Clone, Debug)]
pub(crate) enum ValueKind {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<FileValue>),
    Table(Vec<FileMember>),
}

/// A member of a table.
#[derive(Clone, Debug)]
pub(crate) struct FileMember {
    pub(crate) key: String,
    pub(crate) span: Range<usize>,
    pub(crate) value: FileValue,
}

impl FileValue {
    /// Returns the words for the kind, as errors say them.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self.kind {
            ValueKind::Null => "null",
            ValueKind::Bool(_) => "a truth value",
            ValueKind::Int(_) => "an integer",
            ValueKind::Float(_) => "a float",
            ValueKind::Text(_) => "a text",
            ValueKind::List(_) => "a list",
            ValueKind::Table(_) => "a table",
        }
    }

    /// Returns the value without its place.
    pub(crate) fn to_value(&self) -> Value {
        match &self.kind {
            ValueKind::Null => Value::Null,
            ValueKind::Bool(value) => Value::Bool(*value),
            ValueKind::Int(value) => Value::Int(*value),
            ValueKind::Float(value) => Value::Float(*value),
            ValueKind::Text(text) => Value::Str(text.clone()),
            ValueKind::List(items) => Value::List(items.iter().map(Self::to_value).collect()),
            ValueKind::Table(members) => {
                let members = members.iter().map(|member| (member.key.clone(), member.value.to_value()));
                Value::Map(members.collect::<Map>())
            }
        }
    }
}

/// Reads a TOML document.
pub(crate) fn of_toml(source: &str) -> Result<FileValue, FlowProblem> {
    let table = DeTable::parse(source).map_err(|error| {
        FlowProblem::new(source, error.span().unwrap_or(0..0), error.message().replace('\n', ", "), None)
    })?;
    let span = table.span();
    toml_table(source, span, table.into_inner(), 0)
}

fn toml_table(source: &str, span: Range<usize>, table: DeTable<'_>, depth: usize) -> Result<FileValue, FlowProblem> {
    let mut members = Vec::with_capacity(table.len());
    for (key, value) in table {
        let member = FileMember {
            span: key.span(),
            key: key.into_inner().into_owned(),
            value: toml_value(source, value, depth + 1)?,
        };
        members.push(member);
    }
    // The parser sorts them by name.
    members.sort_by_key(|member| member.span.start);
    Ok(FileValue { span, kind: ValueKind::Table(members) })
}

fn toml_value(source: &str, value: Spanned<DeValue<'_>>, depth: usize) -> Result<FileValue, FlowProblem> {
    let span = value.span();
    let wrong = |message: &str| FlowProblem::new(source, span.clone(), message, None);
    if depth > DEPTH_MAX {
        return Err(wrong(&format!("there are more than {DEPTH_MAX} levels of tables and lists")));
    }
    let kind = match value.into_inner() {
        DeValue::String(text) => ValueKind::Text(text.into_owned()),
        DeValue::Boolean(value) => ValueKind::Bool(value),
        DeValue::Integer(value) => match i64::from_str_radix(value.as_str(), value.radix()) {
            Ok(value) => ValueKind::Int(value),
            Err(_) => return Err(wrong("the integer does not fit into 64 bits")),
        },
        DeValue::Float(value) => match value.as_str().parse() {
            Ok(value) => ValueKind::Float(value),
            Err(_) => return Err(wrong("the float cannot be read")),
        },
        DeValue::Datetime(value) => ValueKind::Text(value.to_string()),
        DeValue::Array(items) => {
            let items = items.into_iter().map(|item| toml_value(source, item, depth + 1));
            ValueKind::List(items.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => return toml_table(source, span, table, depth),
    };
    Ok(FileValue { span, kind })
}

/// Reads a JSON document. `serde_json` judges it; the places are found afterwards.
pub(crate) fn of_json(source: &str) -> Result<FileValue, FlowProblem> {
    if let Err(error) = serde_json::from_str::<serde_json::Value>(source) {
        let line = source.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
        let at = line + error.column().saturating_sub(1);
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        return Err(FlowProblem::new(source, at..at + 1, message, None));
    }
    let mut places = JsonPlaces { source, at: 0 };
    let value = places.value(0)?;
    let rest = places.peek();
    debug_assert_eq!(rest, 0, "the walk ends at the end of the document");
    Ok(value)
}

/// Walks over a document that is valid JSON.
struct JsonPlaces<'a> {
    source: &'a str,
    at: usize,
}

impl JsonPlaces<'_> {
    fn peek(&mut self) -> u8 {
        let rest = &self.source.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.source.as_bytes().get(self.at).copied().unwrap_or_default()
    }

    fn value(&mut self, depth: usize) -> Result<FileValue, FlowProblem> {
        let first = self.peek();
        let start = self.at;
        if depth > DEPTH_MAX {
            let message = format!("there are more than {DEPTH_MAX} levels of tables and lists");
            return Err(FlowProblem::new(self.source, start..start + 1, message, None));
        }
        let kind = match first {
            b'{' => {
                let mut members: Vec<FileMember> = Vec::new();
                while self.is_next(b'}') {
                    self.peek();
                    let begin = self.at;
                    let key = self.text();
                    let span = begin..self.at;
                    if members.iter().any(|member| member.key == key) {
                        let message = format!("the key `{key}` stands twice in a table");
                        return Err(FlowProblem::new(self.source, span, message, None));
                    }
                    let colon = self.peek();
                    debug_assert_eq!(colon, b':', "the document was judged before");
                    self.at += 1;
                    members.push(FileMember { key, span, value: self.value(depth + 1)? });
                }
                ValueKind::Table(members)
            }
            b'[' => {
                let mut items = Vec::new();
                while self.is_next(b']') {
                    items.push(self.value(depth + 1)?);
                }
                ValueKind::List(items)
            }
            b'"' => ValueKind::Text(self.text()),
            _ => {
                let rest = &self.source[self.at..];
                let end = rest.find(|c: char| c.is_whitespace() || ",]}".contains(c)).unwrap_or(rest.len());
                self.at += end;
                match serde_json::from_str::<serde_json::Value>(&rest[..end]).unwrap_or_default() {
                    serde_json::Value::Bool(value) => ValueKind::Bool(value),
                    serde_json::Value::Number(number) => match number.as_i64() {
                        Some(value) => ValueKind::Int(value),
                        None => ValueKind::Float(number.as_f64().unwrap_or_default()),
                    },
                    _ => ValueKind::Null,
                }
            }
        };
        debug_assert!(start < self.at && self.at <= self.source.len(), "a value has a place in the document");
        Ok(FileValue { span: start..self.at, kind })
    }

    /// Moves past an opening bracket or a comma; returns false at the closing bracket, which it moves past too.
    fn is_next(&mut self, close: u8) -> bool {
        let is_open = matches!(self.peek(), b'{' | b'[' | b',');
        // An item that begins with a bracket is not reached here: the walk stands at the opening one or after an item.
        if is_open {
            self.at += 1;
        }
        if self.peek() == close {
            self.at += 1;
            return false;
        }
        self.at < self.source.len()
    }

    fn text(&mut self) -> String {
        let bytes = self.source.as_bytes();
        let start = self.at;
        self.at += 1;
        while self.at < bytes.len() && bytes[self.at] != b'"' {
            self.at += 1 + usize::from(bytes[self.at] == b'\\');
        }
        self.at = (self.at + 1).min(bytes.len());
        serde_json::from_str(&self.source[start..self.at]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_have_the_same_values() {
        let toml = of_toml("a = [1, \"x\\ty\", true]\nb = { c = 1.5, d = {} }\n").unwrap().to_value();
        let json = of_json(r#" {"a": [1, "x\ty", true], "b": {"c": 1.5, "d": {}}} "#).unwrap().to_value();
        assert_eq!(toml, json);
        let nested = of_json(r#"[[], [[1], {"a": [{}]}], null, -2e3]"#).unwrap().to_value().to_json();
        assert_eq!(nested, serde_json::json!([[], [[1], { "a": [{}] }], null, -2e3]));
    }

    #[test]
    fn places_are_found() {
        let source = "{\n  \"a\": {\"b\": \"cd\"}\n}";
        let ValueKind::Table(members) = of_json(source).unwrap().kind else { panic!("a table") };
        assert_eq!(&source[members[0].span.clone()], "\"a\"");
        assert_eq!(&source[members[0].value.span.clone()], "{\"b\": \"cd\"}");
        let error = of_json("{\n  \"a\" 1}").unwrap_err();
        assert_eq!((error.line, error.column), (2, 7));
        let error = of_toml("a = 1\nb = [1,, 2]\n").unwrap_err();
        assert_eq!((error.line, error.column), (2, 8));
    }

    #[test]
    fn depth_is_limited_in_both_formats() {
        let deep = format!("{}{}", "[".repeat(60), "]".repeat(60));
        assert!(of_json(&deep).unwrap_err().message.contains("32 levels"));
        assert!(of_toml(&format!("a = {deep}")).unwrap_err().message.contains("32 levels"));
    }
}
