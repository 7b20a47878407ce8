//! Texts as Python and pydantic write them, which the engine and the crates of message formats share. They are not part
//! of the public interface: a release may change or remove each of them without a word in the changelog.
//!
//! *Absent:* anything that an application or a message format of its own needs.

pub(crate) mod text;

pub use text::{
    JsonItems, JsonItemsError, JsonStyle, json_dumps, json_loads, json_write, py_float, py_repr, py_str, py_title,
    truthy, xml_escape, xml_quoteattr,
};
