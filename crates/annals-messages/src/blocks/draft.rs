//! A block while it is put together, and short words for looking into a provider's objects.
//!
//! *Absent:* rules of any provider.

use crate::MessageError;
use crate::text::truthy;
use annals_base::{Map, Value};

/// A block under construction: its fields in order, and its extras, which are written only if there are any.
pub(crate) struct Draft {
    fields: Map,
    extras: Map,
}

impl Draft {
    pub(crate) fn of(kind: &str) -> Self {
        Self { fields: Map::from_iter([("type".to_owned(), kind.into())]), extras: Map::new() }
    }

    /// Continues an object that is a block already.
    pub(crate) fn from_map(mut fields: Map) -> Self {
        let extras = match fields.shift_remove("extras") {
            Some(Value::Map(extras)) => extras,
            _ => Map::new(),
        };
        Self { fields, extras }
    }

    pub(crate) fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// Sets the field if there is a value.
    pub(crate) fn maybe(self, name: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }

    /// Takes the field over if the object has it, null included.
    pub(crate) fn copy(self, name: &str, from: &Map) -> Self {
        self.maybe(name, from.get(name).cloned())
    }

    /// Takes all fields over but those named.
    pub(crate) fn copy_except(mut self, from: &Map, known: &[&str]) -> Self {
        self.fields.extend(others(from, known));
        self
    }

    pub(crate) fn extra(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extras.insert(name.to_owned(), value.into());
        self
    }

    /// Adds an extra if there is a value.
    pub(crate) fn maybe_extra(self, name: &str, value: Option<&Value>) -> Self {
        match value {
            Some(value) => self.extra(name, value.clone()),
            None => self,
        }
    }

    /// Takes all fields over into the extras but those named.
    pub(crate) fn extras_except(mut self, from: &Map, known: &[&str]) -> Self {
        self.extras.extend(others(from, known));
        self
    }

    pub(crate) fn done(mut self) -> Map {
        if !self.extras.is_empty() {
            self.fields.insert("extras".to_owned(), self.extras.into());
        }
        self.fields
    }
}

/// Wraps an object that is not a standard block.
pub(crate) fn non_standard(value: Map) -> Map {
    Draft::of("non_standard").set("value", value).done()
}

/// Wraps it, with its place in a stream moved to the wrapper.
pub(crate) fn non_standard_with_index(mut value: Map, index_of: impl Fn(Value) -> Value) -> Map {
    let index = value.shift_remove("index").map(index_of);
    Draft::of("non_standard").set("value", value).maybe("index", index).done()
}

/// Returns the fields that are not named.
pub(crate) fn others(from: &Map, known: &[&str]) -> impl Iterator<Item = (String, Value)> {
    from.iter().filter(|(name, _)| !known.contains(&name.as_str())).map(|(name, value)| (name.clone(), value.clone()))
}

/// Returns the `type` of an object; an empty text if it has none.
pub(crate) fn kind_of(block: &Map) -> &str {
    block.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// Returns the value at `name` if it is truthy.
pub(crate) fn truthy_in<'a>(map: &'a Map, name: &str) -> Option<&'a Value> {
    map.get(name).filter(|value| truthy(value))
}

/// Returns whether there is a truthy value at `name`.
pub(crate) fn truthy_at(map: &Map, name: &str) -> bool {
    truthy_in(map, name).is_some()
}

/// Returns the value at `name`, or `default` if there is none.
pub(crate) fn value_or(map: &Map, name: &str, default: impl Into<Value>) -> Value {
    map.get(name).cloned().unwrap_or_else(|| default.into())
}

/// Returns the object at `name`.
pub(crate) fn object_in<'a>(map: &'a Map, name: &str) -> Option<&'a Map> {
    map.get(name).and_then(Value::as_map)
}

/// Returns the value at `name`, which a translation cannot do without.
///
/// # Errors
/// [`MessageError::Missing`] if there is none.
pub(crate) fn need(map: &Map, name: &str) -> Result<Value, MessageError> {
    map.get(name).cloned().ok_or_else(|| MessageError::key("a content block", name))
}
