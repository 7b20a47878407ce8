//! The arguments of a tool call, verified against the fields that the tool declares.

use serde_json::{Map, Value as Json, json};

use crate::error::ToolError;
use crate::limits::NAME_BYTES_MAX;

/// What a field takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ToolFieldKind {
    /// A text that is not empty, of at most so many bytes.
    Text(usize),
    /// An integer between two limits, and its default.
    Number { min: u64, max: u64, default: Option<u64> },
    /// True or false; false by default.
    Flag,
    /// One of some words, of which the first is the default.
    Choice(&'static [&'static str]),
}

/// A field of a tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToolField {
    pub(crate) name: &'static str,
    pub(crate) kind: ToolFieldKind,
    pub(crate) is_required: bool,
    pub(crate) about: &'static str,
}

impl ToolField {
    pub(crate) const fn required(name: &'static str, kind: ToolFieldKind, about: &'static str) -> Self {
        Self { name, kind, is_required: true, about }
    }

    pub(crate) const fn optional(name: &'static str, kind: ToolFieldKind, about: &'static str) -> Self {
        Self { name, kind, is_required: false, about }
    }

    /// Declares a name, a point or a cursor.
    pub(crate) const fn name(name: &'static str, about: &'static str) -> Self {
        Self::optional(name, ToolFieldKind::Text(NAME_BYTES_MAX), about)
    }

    /// Returns the JSON Schema of the field.
    pub(crate) fn schema(&self) -> Json {
        let mut schema = match self.kind {
            ToolFieldKind::Text(max) => json!({ "type": "string", "minLength": 1, "maxLength": max }),
            ToolFieldKind::Number { min, max, default } => {
                let mut schema = json!({ "type": "integer", "minimum": min, "maximum": max });
                if let Some(default) = default {
                    schema["default"] = default.into();
                }
                schema
            }
            ToolFieldKind::Flag => json!({ "type": "boolean", "default": false }),
            ToolFieldKind::Choice(words) => json!({ "type": "string", "enum": words, "default": words.first() }),
        };
        schema["description"] = self.about.into();
        schema
    }

    fn verify(&self, value: &Json) -> Result<(), ToolError> {
        let field = self.name;
        let wrong = |expected: &str| Err(ToolError::Type { field, expected: expected.to_owned() });
        match self.kind {
            ToolFieldKind::Text(limit) => match value.as_str() {
                None => wrong("a text"),
                Some(text) if text.trim().is_empty() => {
                    Err(ToolError::Invalid { field, reason: "the text is empty".to_owned() })
                }
                Some(text) if text.len() > limit => Err(ToolError::TooLong { field, bytes: text.len(), limit }),
                Some(_) => Ok(()),
            },
            ToolFieldKind::Number { min, max, .. } => match (value.as_u64(), value.is_i64() || value.is_u64()) {
                (_, false) => wrong("an integer"),
                (Some(number), _) if (min..=max).contains(&number) => Ok(()),
                _ => Err(ToolError::OutOfRange { field, value: value.to_string(), min, max }),
            },
            ToolFieldKind::Flag if value.is_boolean() => Ok(()),
            ToolFieldKind::Flag => wrong("true or false"),
            ToolFieldKind::Choice(words) if value.as_str().is_some_and(|word| words.contains(&word)) => Ok(()),
            ToolFieldKind::Choice(words) => wrong(&format!("one of {}", words.join(", "))),
        }
    }
}

/// The verified arguments of a call.
#[derive(Debug)]
pub(crate) struct ToolArguments<'a> {
    fields: &'static [ToolField],
    given: Option<&'a Map<String, Json>>,
}

impl<'a> ToolArguments<'a> {
    /// Verifies arguments. A member that is null counts as absent: some clients send one for each optional field.
    pub(crate) fn of(fields: &'static [ToolField], given: Option<&'a Map<String, Json>>) -> Result<Self, ToolError> {
        let arguments = Self { fields, given };
        for (name, value) in given.into_iter().flatten() {
            let Some(field) = fields.iter().find(|field| field.name == name) else {
                let known = fields.iter().map(|field| field.name).collect::<Vec<_>>().join(", ");
                let field: String = name.chars().take(100).collect();
                return Err(ToolError::UnknownField { field, known });
            };
            if !value.is_null() {
                field.verify(value)?;
            }
        }
        match fields.iter().find(|field| field.is_required && arguments.get(field.name).is_none()) {
            Some(missing) => Err(ToolError::Missing { field: missing.name }),
            None => Ok(arguments),
        }
    }

    fn get(&self, name: &str) -> Option<&'a Json> {
        debug_assert!(self.fields.iter().any(|field| field.name == name), "{name} is declared");
        self.given?.get(name).filter(|value| !value.is_null())
    }

    /// Returns a text; the default of a choice that was not made.
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        let default = || match self.fields.iter().find(|field| field.name == name)?.kind {
            ToolFieldKind::Choice(words) => words.first().copied(),
            _ => None,
        };
        self.get(name).and_then(Json::as_str).or_else(default)
    }

    /// Returns a text that the tool requires.
    pub(crate) fn required(&self, name: &'static str) -> Result<&'a str, ToolError> {
        self.text(name).ok_or(ToolError::Missing { field: name })
    }

    /// Returns a number, or the default that it declares.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        let default = || match self.fields.iter().find(|field| field.name == name)?.kind {
            ToolFieldKind::Number { default, .. } => default,
            _ => None,
        };
        self.get(name).and_then(Json::as_u64).or_else(default)
    }

    /// Returns a number of rows.
    pub(crate) fn count(&self, name: &str) -> usize {
        usize::try_from(self.number(name).unwrap_or_default()).unwrap_or(usize::MAX)
    }

    /// Returns whether a flag is set.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name).and_then(Json::as_bool).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &[ToolField] = &[
        ToolField::required("query", ToolFieldKind::Text(4), "words"),
        ToolField::optional("limit", ToolFieldKind::Number { min: 1, max: 9, default: Some(5) }, "rows"),
        ToolField::optional("role", ToolFieldKind::Choice(&["ai", "human"]), "role"),
        ToolField::optional("deep", ToolFieldKind::Flag, "flag"),
    ];

    #[test]
    fn each_wrong_argument_is_refused_by_its_name() {
        for (given, code, field) in [
            (json!({}), "MISSING_FIELD", "query"),
            (json!({ "query": null }), "MISSING_FIELD", "query"),
            (json!({ "query": 1 }), "WRONG_TYPE", "query"),
            (json!({ "query": " " }), "INVALID_ARGUMENT", "query"),
            (json!({ "query": "abcde" }), "TOO_LONG", "query"),
            (json!({ "query": "a", "limit": 0 }), "OUT_OF_RANGE", "limit"),
            (json!({ "query": "a", "limit": -1 }), "OUT_OF_RANGE", "limit"),
            (json!({ "query": "a", "limit": 1.5 }), "WRONG_TYPE", "limit"),
            (json!({ "query": "a", "limit": "3" }), "WRONG_TYPE", "limit"),
            (json!({ "query": "a", "role": "tool" }), "WRONG_TYPE", "role"),
            (json!({ "query": "a", "deep": "yes" }), "WRONG_TYPE", "deep"),
            (json!({ "query": "a", "more": 1 }), "UNKNOWN_FIELD", "more"),
        ] {
            let error = ToolArguments::of(FIELDS, given.as_object()).unwrap_err();
            assert_eq!((error.code(), error.field()), (code, Some(field)), "{given}: {error}");
            assert!(error.to_string().contains(field), "{error}");
        }
    }

    #[test]
    fn defaults_stand_for_absent_arguments() {
        let given = json!({ "query": "a", "limit": null });
        let arguments = ToolArguments::of(FIELDS, given.as_object()).unwrap();
        assert_eq!((arguments.text("query"), arguments.number("limit")), (Some("a"), Some(5)));
        assert_eq!((arguments.text("role"), arguments.flag("deep")), (Some("ai"), false));
    }
}
