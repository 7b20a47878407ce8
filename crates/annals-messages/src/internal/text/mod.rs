//! Values as texts, as Python writes them: the texts of LangChain's messages for a model or a log depend on it.
//!
//! *Absent:* messages. The rules are those of CPython 3.11: `repr`, `json.dumps`, `json.loads`, `str.title`,
//! `xml.sax.saxutils`.

mod json;
mod json_items;
mod json_read;
mod printable;
mod python;
mod xml;

pub(crate) use json::json_dumps_map;
pub use json::{JsonStyle, json_dumps, json_write};
pub use json_items::{JsonItems, JsonItemsError};
pub use json_read::{JsonError, json_loads};
pub(crate) use json_read::{Open, Reader};
pub use python::{py_float, py_repr, py_str, py_title};
pub(crate) use python::{py_repr_map, py_type};
pub use xml::{xml_escape, xml_quoteattr};

use annals_base::Value;

/// Returns whether Python takes the value as true: it is not null, not false, not zero, and not empty.
///
/// # Example
/// ```
/// use annals_base::Value;
/// use annals_messages::internal::truthy;
///
/// assert!(truthy(&Value::from("no")) && truthy(&Value::from(0.1)));
/// assert!(!truthy(&Value::from("")) && !truthy(&Value::Null));
/// ```
pub fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(b) => *b,
        Value::Int(n) => *n != 0,
        Value::UInt(n) => *n != 0,
        Value::Float(x) => *x != 0.0,
        Value::Str(text) => !text.is_empty(),
        Value::Bytes(bytes) => !bytes.is_empty(),
        Value::List(items) => !items.is_empty(),
        Value::Map(map) => !map.is_empty(),
        Value::Ext(..) => true,
    }
}
