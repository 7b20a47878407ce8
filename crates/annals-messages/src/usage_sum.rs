//! Adding and subtracting token counts.

use super::merge::{from_integer, integer};
use super::text::{py_type, truthy};
use super::{MessageError, Usage};
use crate::limits::USAGE_DEPTH_MAX;
use annals_base::{Map, Value};

/// Adds two `usage_metadata`: integers are added, objects member by member. If one is null or empty, the other is the
/// sum; if both are, the counts are zero.
///
/// # Errors
/// [`MessageError`] (`ValueError`) if a member is neither an integer nor an object in both, or they are nested too
/// deeply.
pub fn add_usage(left: &Value, right: &Value) -> Result<Value, MessageError> {
    combine_usage(left, right, |a, b| a + b)
}

/// Subtracts two `usage_metadata` as [`add_usage`] adds them; no count falls below zero.
///
/// # Errors
/// [`MessageError`] as [`add_usage`].
pub fn subtract_usage(left: &Value, right: &Value) -> Result<Value, MessageError> {
    combine_usage(left, right, |a, b| (a - b).max(0))
}

impl Usage {
    /// Returns the sum of the counts, with those of the details.
    pub(crate) fn plus(&self, other: &Self) -> Result<Self, MessageError> {
        add_usage(&self.clone().into(), &other.clone().into())?.try_into()
    }
}

fn combine_usage(left: &Value, right: &Value, operation: fn(i128, i128) -> i128) -> Result<Value, MessageError> {
    match (truthy(left), truthy(right)) {
        (false, false) => Ok(Usage::default().into()),
        (true, false) => Ok(left.clone()),
        (false, true) => Ok(right.clone()),
        (true, true) => {
            let none = Map::new();
            let map = |value: &Value| value.as_map().cloned().unwrap_or_else(|| none.clone());
            combine(&map(left), &map(right), operation, 0).map(Value::Map)
        }
    }
}

fn combine(left: &Map, right: &Map, operation: fn(i128, i128) -> i128, depth: usize) -> Result<Map, MessageError> {
    if depth >= USAGE_DEPTH_MAX {
        return Err(MessageError::value(format!("max_depth={USAGE_DEPTH_MAX} exceeded, unable to combine dicts.")));
    }
    let mut out = Map::with_capacity(left.len());
    let added = right.keys().filter(|name| !left.contains_key(name));
    for name in left.keys().chain(added) {
        let (a, b) = (left.get(name), right.get(name));
        let count = |value: Option<&Value>| value.map_or(Some(0), integer);
        let object = |value: Option<&Value>| value.map_or_else(|| Some(Map::new()), |value| value.as_map().cloned());
        let combined = if let (Some(a), Some(b)) = (count(a), count(b)) {
            let fits = from_integer(operation(a, b));
            fits.ok_or_else(|| MessageError::value("the count does not fit into 64 bits").within(name))?
        } else if let (Some(a), Some(b)) = (object(a), object(b)) {
            Value::Map(combine(&a, &b, operation, depth + 1).map_err(|e| e.within(name))?)
        } else {
            let types: Vec<_> =
                [a, b].into_iter().flatten().map(|value| format!("<class '{}'>", py_type(value))).collect();
            let reason =
                format!("Unknown value types: [{}]. Only dict and int values are supported.", types.join(", "));
            return Err(MessageError::value(reason).within(name));
        };
        out.insert(name.clone(), combined);
    }
    debug_assert!(out.len() >= left.len().max(right.len()), "a sum has the members of both");
    Ok(out)
}
