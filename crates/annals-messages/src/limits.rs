//! The limits that the formats of messages alone use; those that others see are in `annals_base::limits`.

use annals_base::limits::{VALUE_BYTES_MAX, VALUE_DEPTH_MAX, VALUE_NODES_MAX};

/// Lists and objects inside one another in a JSON text. A message stores them up to 8 levels deeper, in a map of
/// fields.
pub(crate) const JSON_DEPTH_MAX: usize = VALUE_DEPTH_MAX - 16;
/// Values inside one JSON text.
pub(crate) const JSON_NODES_MAX: usize = VALUE_NODES_MAX - 1_024;
/// Bytes of the text of one item of an import, which is held as a whole.
pub(crate) const IMPORT_ITEM_BYTES_MAX: usize = 128 << 20;
/// Code points of a message-like object that an error repeats (as in LangChain).
pub(crate) const MESSAGE_EXCERPT_CHARS_MAX: usize = 500;
/// Objects inside one another in token counts that are added (as in LangChain).
pub(crate) const USAGE_DEPTH_MAX: usize = 100;
/// Levels of objects and lists of a value in which dumps of messages are read (as in LangChain).
pub(crate) const LOAD_DEPTH_MAX: usize = 200;
/// Code points of an argument or a result in a conversation as XML (as in LangChain).
pub(crate) const XML_TEXT_CHARS_MAX: usize = 500;
/// Code points of the id of a tool call in a conversation as XML.
pub(crate) const XML_ID_CHARS_MAX: usize = 64;

const _: () = assert!(JSON_DEPTH_MAX + 8 <= VALUE_DEPTH_MAX && JSON_NODES_MAX < VALUE_NODES_MAX);
const _: () = assert!(VALUE_BYTES_MAX < IMPORT_ITEM_BYTES_MAX);
const _: () = assert!(USAGE_DEPTH_MAX < VALUE_DEPTH_MAX && XML_ID_CHARS_MAX < XML_TEXT_CHARS_MAX);
