//! The merge of two chunks of a message: texts are joined, objects and lists are merged member by member.
//!
//! *Absent:* messages; `chunk` applies these rules to them.

use super::text::{py_repr, py_type, truthy};
use super::{Content, MessageError};
use annals_base::{Map, Value};

/// Merges the members of `right` into `left`: texts are put together, objects and lists merged, integers added. A null
/// gives way. Ids and the like stay if they are equal, positions and times are replaced.
///
/// # Errors
/// [`MessageError`] (`TypeError`) if two values have different types, or differ and cannot be merged.
///
/// # Example: the text of arguments grows
/// ```
/// use annals_base::{Map, Value};
/// use annals_messages::merge_dicts;
///
/// let map = |args: &str| Map::from_iter([("arguments".to_string(), Value::from(args))]);
/// assert_eq!(merge_dicts(map("{\"a\": "), map("1}"))?, map("{\"a\": 1}"));
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
pub fn merge_dicts(mut left: Map, right: Map) -> Result<Map, MessageError> {
    let longer = left.len().max(right.len());
    for (name, new) in right {
        match left.get_mut(&name) {
            None => _ = left.insert(name, new),
            Some(old @ Value::Null) => *old = new,
            Some(_) if new.is_null() => {}
            Some(old) => merge_member(&name, old, new)?,
        }
    }
    debug_assert!(left.len() >= longer, "a merged object has the members of both");
    Ok(left)
}

fn merge_member(name: &str, old: &mut Value, new: Value) -> Result<(), MessageError> {
    match (&mut *old, new) {
        (Value::Str(old), Value::Str(new)) => {
            let stays = name == "index" && old.starts_with("lc_");
            let is_same = matches!(name, "id" | "output_version" | "model_provider") && *old == new;
            if !stays && !is_same {
                old.push_str(&new);
            }
        }
        (Value::Map(map), Value::Map(new)) => {
            let merged = merge_dicts(std::mem::take(map), new).map_err(|e| e.within(name))?;
            *map = merged;
        }
        (Value::List(list), Value::List(new)) => {
            let merged = merge_lists(std::mem::take(list), new).map_err(|e| e.within(name))?;
            *list = merged;
        }
        (old, new) if py_type(old) != py_type(&new) => {
            return Err(MessageError::wrong_type(format!(
                "additional_kwargs[\"{name}\"] already exists in this message, but with a different type."
            )));
        }
        (old, new) if *old == new => {}
        (old @ (Value::Int(_) | Value::UInt(_)), new) => {
            let is_replaced = matches!(name, "index" | "created" | "timestamp");
            *old = if is_replaced { new } else { sum(old, &new).map_err(|e| e.within(name))? };
        }
        (old, _) => {
            return Err(MessageError::wrong_type(format!(
                "Additional kwargs key {name} already exists in left dict and value has unsupported type <class '{}'>.",
                py_type(old)
            )));
        }
    }
    Ok(())
}

/// Adds two integers.
pub(super) fn sum(a: &Value, b: &Value) -> Result<Value, MessageError> {
    let sum = integer(a).zip(integer(b)).map(|(a, b)| a + b);
    sum.and_then(from_integer).ok_or_else(|| MessageError::value("the sum does not fit into 64 bits"))
}

/// Returns the integer; a truth value is one too.
pub(super) fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Int(n) => Some((*n).into()),
        Value::UInt(n) => Some((*n).into()),
        Value::Bool(b) => Some((*b).into()),
        _ => None,
    }
}

pub(super) fn from_integer(n: i128) -> Option<Value> {
    i64::try_from(n).map(Value::Int).ok().or_else(|| u64::try_from(n).ok().map(Value::UInt))
}

/// Merges the items of `right` into `left`: an object with an `index` into the object there that has the same index and
/// no other id, anything else at the end.
///
/// # Errors
/// [`MessageError`] as [`merge_dicts`], with the place in `right`.
pub fn merge_lists(mut left: Vec<Value>, right: Vec<Value>) -> Result<Vec<Value>, MessageError> {
    let lengths = left.len()..=left.len() + right.len();
    for (at, new) in right.into_iter().enumerate() {
        match new {
            Value::Map(new) => match left.iter_mut().find(|old| is_partner(old, &new)) {
                Some(Value::Map(old)) => {
                    let new = without_type(old, new);
                    let merged = merge_dicts(std::mem::take(old), new).map_err(|e| e.within(format_args!("[{at}]")))?;
                    *old = merged;
                }
                _ => left.push(Value::Map(new)),
            },
            new => left.push(new),
        }
    }
    debug_assert!(lengths.contains(&left.len()), "an item is merged or added");
    Ok(left)
}

/// Returns whether `new` is to be merged into `old`.
pub(super) fn is_partner(old: &Value, new: &Map) -> bool {
    let (Some(index), Value::Map(old)) = (merge_index(new), old) else { return false };
    let is_free = |id: Option<&Value>| id.is_none_or(|id| id.is_null() || id.as_str() == Some(""));
    let (ours, theirs) = (old.get("id"), new.get("id"));
    let is_same = old.get("index").is_some_and(|old| same_index(old, index));
    is_same && (is_free(ours) || is_free(theirs) || ours == theirs)
}

/// Returns the index by which an object is merged into another one.
pub(super) fn merge_index(new: &Map) -> Option<&Value> {
    new.get("index").filter(|index| match index {
        Value::Str(text) => text.starts_with("lc_"),
        index => integer(index).is_some(),
    })
}

/// In Python, `1`, `1.0` and `True` are equal.
fn same_index(a: &Value, b: &Value) -> bool {
    match (a, integer(b)) {
        (Value::Float(a), Some(b)) => b as f64 == *a,
        (a, Some(b)) => integer(a) == Some(b),
        (a, None) => a == b,
    }
}

/// The types of blocks are not concatenated; a non-standard block joins the extras of a standard one.
pub(super) fn without_type(old: &Map, mut new: Map) -> Map {
    let old_type = old.get("type").filter(|kind| truthy(kind));
    let is_foreign = new.get("type").and_then(Value::as_str) == Some("non_standard");
    if let (Some(old_type), true, Some(Value::Map(value))) = (old_type, is_foreign, new.get("value")) {
        let mut value = value.clone();
        value.shift_remove("type");
        let name = if old_type.as_str() == Some("non_standard") { "value" } else { "extras" };
        let index = new.shift_remove("index").filter(|_| name == "value").map(|index| ("index".to_owned(), index));
        return std::iter::once((name.to_owned(), Value::Map(value))).chain(index).collect();
    }
    new.shift_remove("type");
    new
}

/// Merges two values of one type; null gives way.
///
/// # Errors
/// [`MessageError`] if the types differ (`TypeError`), or the values do and cannot be merged (`ValueError`).
pub fn merge_obj(left: Value, right: Value) -> Result<Value, MessageError> {
    match (left, right) {
        (Value::Null, other) | (other, Value::Null) => Ok(other),
        (Value::Str(left), Value::Str(right)) => Ok(Value::Str(left + &right)),
        (Value::Map(left), Value::Map(right)) => merge_dicts(left, right).map(Value::Map),
        (Value::List(left), Value::List(right)) => merge_lists(left, right).map(Value::List),
        (left, right) if py_type(&left) != py_type(&right) => Err(MessageError::wrong_type(format!(
            "left and right are of different types. Left type:  <class '{}'>. Right type: <class '{}'>.",
            py_type(&left),
            py_type(&right)
        ))),
        (left, right) if left == right => Ok(left),
        (left, right) => {
            Err(MessageError::value(format!("Unable to merge left={} and right={}.", py_repr(&left), py_repr(&right))))
        }
    }
}

/// Puts two contents together: texts grow, lists are merged, and a text joins a list at its end.
///
/// # Errors
/// [`MessageError`] as [`merge_lists`].
///
/// # Example
/// ```
/// use annals_messages::{Content, merge_content};
///
/// assert_eq!(merge_content("hel".into(), "lo".into())?, Content::from("hello"));
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
pub fn merge_content(left: Content, right: Content) -> Result<Content, MessageError> {
    Ok(match (left, right) {
        (Content::Text(mut left), Content::Text(right)) => {
            left.push_str(&right);
            Content::Text(left)
        }
        (Content::Text(left), Content::Blocks(mut blocks)) => {
            blocks.insert(0, Value::Str(left));
            Content::Blocks(blocks)
        }
        (Content::Blocks(left), Content::Blocks(right)) => {
            Content::Blocks(merge_lists(left, right).map_err(|e| e.within("content"))?)
        }
        (Content::Blocks(mut blocks), Content::Text(right)) => {
            match blocks.last_mut() {
                Some(Value::Str(last)) => last.push_str(&right),
                Some(_) if !right.is_empty() => blocks.push(Value::Str(right)),
                // To an empty list LangChain adds no text.
                _ => {}
            }
            Content::Blocks(blocks)
        }
    })
}
