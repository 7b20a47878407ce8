//! Floor 0: the words that every other floor uses.
//!
//! Plain data and pure functions: ids, namespaces, values and their encoding, sums, limits, and the clock as an
//! argument. *Absent:* I/O, channels, messages, SQL, graphs. Nothing here knows another floor of `annals`.

pub mod base64;
mod codec;
mod fresh;
pub mod hash;
pub mod id;
pub mod integer;
pub mod limits;
mod list_delta;
mod map;
pub mod namespace;
pub mod payload;
pub mod time;
pub mod value;

pub use fresh::Fresh;
pub use id::{CheckpointId, IdSource, RunId, TaskId, ThreadId};
pub use list_delta::{ListDelta, ListRef};
pub use map::Map;
pub use namespace::Namespace;
pub use payload::{ItemIndex, ItemIndexRef, Payload, PayloadRef, WriteValue};
pub use time::{Clock, SystemClock, Timestamp};
pub use value::{
    Codec, CodecError, Encoded, Value, ValueDeserializer, ValueSerializer, ValueView, decode_bytes, decode_value,
};

/// Returns the message of a caught panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
