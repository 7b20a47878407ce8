//! What a program needs: `use annals::prelude::*`.

pub use crate::base::Value;
pub use crate::drive::{Durability, Input, IntoInput, Outcome, StateUpdate, TaskState, UpdateAs};
pub use crate::error::{Error, Result};
pub use crate::graph::{
    AsyncTask, CachePolicy, Command, CompiledGraph, Context, END, Entry, Entrypoint, Final, Interrupt, Named,
    NodeDefaults, NodeOptions, NodeResult, Own, Persistence, RefreshOn, RetryPolicy, RunControl, START, SendTo,
    StateGraph, Target, Task, TimeoutPolicy,
};
pub use crate::history::{Snapshot, Thread};
pub use crate::message::{Message, ToolCall, Usage};
pub use crate::state::{DynSchema, DynState, DynUpdate, List, Messages, Overwrite, Schema, State};
pub use crate::store::{Kv, KvItem, KvQuery, OpenOptions, Store, Synchronous};
pub use crate::stream::{StreamData, StreamMode, StreamPart};
