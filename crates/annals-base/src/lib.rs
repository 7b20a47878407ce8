//! The vocabulary of `annals`: dynamic values and their stored encoding, ids, namespaces, timestamps and limits.
//!
//! | type | meaning |
//! | --- | --- |
//! | [`Value`], [`Map`] | a self-describing value: JSON's types, bytes, MessagePack extensions and integers of any length |
//! | [`Encoded`], [`Codec`] | the stored bytes of a value: MessagePack with names |
//! | [`Payload`], [`ItemIndex`] | the stored bytes of a list item, and its searchable fields |
//! | [`ThreadId`], [`CheckpointId`], [`TaskId`], [`RunId`], [`IdSource`] | ids, and the source that mints them |
//! | [`Namespace`] | the position of a subgraph inside a thread |
//! | [`Timestamp`], [`Clock`] | microseconds since 1970, and the clock as an argument |
//! | [`limits`] | every maximum of the workspace |
//!
//! Invariants: a value that [`Encoded::encode`] accepts is decoded again; every limit is refused with an error that
//! names it. *Absent:* I/O, channels, messages, SQL, graphs, and the system clock unless a caller passes
//! [`SystemClock`].
//!
//! # Recipe: a dynamic value of a typed one, and back
//! ```
//! use annals_base::Value;
//!
//! #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
//! struct Weather {
//!     city: String,
//!     celsius: i64,
//! }
//!
//! let weather = Weather { city: "Bern".into(), celsius: 12 };
//! let value = Value::from_serialize(&weather)?;
//! assert!(value["city"] == "Bern" && value["celsius"] == 12);
//! assert_eq!(value.to::<Weather>()?, weather);
//! # Ok::<(), annals_base::CodecError>(())
//! ```
//!
//! # Recipe: the stored bytes of a value
//! ```
//! use annals_base::{Encoded, Value, decode_value};
//!
//! let value = Value::from(serde_json::json!({"tags": ["a", "b"]}));
//! let stored = Encoded::encode(&value)?;
//! assert_eq!(decode_value(stored.codec, &stored.bytes)?, value);
//! # Ok::<(), annals_base::CodecError>(())
//! ```
//!
//! # Recipe: a limit is a typed error
//! ```
//! use annals_base::{CodecError, Encoded, Value};
//!
//! let deep = (0..200).fold(Value::Null, |inner, _| Value::List(vec![inner]));
//! assert_eq!(Encoded::encode(&deep), Err(CodecError::TooDeep { limit: 128 }));
//! ```

mod codec;
mod default_source;
mod id;
mod integer;
#[doc(hidden)]
pub mod internal;
pub mod limits;
mod list_delta;
mod macros;
mod map;
mod namespace;
mod payload;
mod time;
mod value;

pub use default_source::DefaultSource;
pub use id::{CheckpointId, IdError, IdSource, NULL_TASK, RunId, TaskId, ThreadId};
pub use list_delta::{ListDelta, ListRef};
pub use map::Map;
pub use namespace::Namespace;
pub use payload::{ItemIndex, ItemIndexRef, Payload, PayloadRef, WriteValue};
pub use time::{Clock, SystemClock, Timestamp, TimestampError};
pub use value::{Codec, CodecError, Encoded, Value, ValueView, decode_bytes, decode_value};
