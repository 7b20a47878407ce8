//! The names that most programs need: `use annals_graph::prelude::*`.

pub use annals::prelude::{
    DynSchema, DynState, DynUpdate, Kv, KvItem, KvQuery, List, Message, Messages, OpenOptions, Overwrite, Schema,
    Snapshot, State, Store, Synchronous, Thread, ToolCall, Usage, Value,
};

pub use crate::drive::{Durability, Input, IntoInput, Outcome, StateUpdate, TaskState, UpdateAs};
pub use crate::error::{Error, Result};
pub use crate::graph::{
    CachePolicy, Command, CompiledGraph, END, Entry, Entrypoint, Final, Named, NodeDefaults, NodeOptions, NodeResult,
    Own, Persistence, RefreshOn, RetryPolicy, START, SendTo, StateGraph, Target, TimeoutPolicy,
};
pub use crate::stream::{StreamData, StreamMode, StreamPart};
pub use crate::task::{AsyncTask, Context, Interrupt, RunControl, Task};
