//! Embedded, append-only state for agents and workflows.

// The derive names this crate `::annals`, also in its own tests.
#[allow(unused_extern_crates)]
extern crate self as annals;

pub mod base;
pub mod channel;
mod drive;
mod error;
mod exec;
pub mod graph;
pub mod history;
pub mod message;
pub mod prelude;
pub mod state;
pub mod store;
mod stream;

pub use drive::{Durability, Input, IntoInput, Outcome, Run, RunOn, StateSnapshot, Stream, TaskView};
pub use error::{Error, ErrorKind, Result};
pub use exec::RunError;
pub use stream::{StreamMode, StreamPart};
