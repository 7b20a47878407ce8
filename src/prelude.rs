//! The names that most programs need: `use annals::prelude::*`.

pub use crate::base::Value;
pub use crate::error::{Error, Result};
pub use crate::history::{Snapshot, Thread};
pub use crate::message::{Message, ToolCall, Usage};
pub use crate::state::{DynSchema, DynState, DynUpdate, List, Messages, Overwrite, Schema, State};
pub use crate::store::{Kv, KvItem, KvQuery, OpenOptions, Store, Synchronous};
