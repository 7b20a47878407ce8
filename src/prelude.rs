//! The names that most programs need: `use annals::prelude::*`.

pub use crate::base::Value;
pub use crate::error::{Error, Result};
pub use crate::history::{Snapshot, Thread};
pub use crate::message::Message;
pub use crate::state::{DynSchema, DynUpdate, List, Messages, Schema, State};
pub use crate::store::{OpenOptions, Store, Synchronous};
