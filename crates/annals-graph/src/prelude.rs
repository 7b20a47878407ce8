//! The names that most programs need: `use annals_graph::prelude::*`.

pub use annals::prelude::{
    DynSchema, DynState, DynUpdate, Kv, KvItem, KvQuery, List, Message, Messages, OpenOptions, Overwrite, Schema,
    Snapshot, State, Store, Synchronous, Thread, ToolCall, Usage, Value,
};

pub use crate::drive::{Durability, Input, IntoInput, Outcome, StateUpdate, TaskState, UpdateAs};
pub use crate::error::{Error, Result};
pub use crate::graph::{
    AsyncTask, CachePolicy, Command, CompiledGraph, Context, END, Entry, Entrypoint, Final, Interrupt, Named,
    NodeDefaults, NodeOptions, NodeResult, Own, Persistence, RefreshOn, RetryPolicy, RunControl, START, SendTo,
    StateGraph, Target, Task, TimeoutPolicy,
};
pub use crate::stream::{StreamData, StreamMode, StreamPart};
